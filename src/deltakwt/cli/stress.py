"""`deltakwt stress`: long streams with known words, judged as deployments are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    ModelOption,
    console,
    load_model,
    print_json,
    progress,
    table,
)
from deltakwt.cli.listen import HopOption, OnOption, ReuseOption, decision_settings
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.listen.streams import Stream
    from deltakwt.listen.stress import Course


def stress(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    profile: Annotated[
        list[str] | None, typer.Option(help="Profiles, 'dense' too (all, if none is named).")
    ] = None,
    noise: Annotated[
        Path | None, typer.Option(help="Folder of noise recordings (_background_noise_ of DATA).")
    ] = None,
    split: Annotated[str, typer.Option(help="Clips of a full data set: test, val.")] = "test",
    hours: Annotated[float, typer.Option(help="Length of the stream.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 1,
    snr: Annotated[float, typer.Option(help="Loudness of words over the noise, in dB.")] = 10.0,
    gap: Annotated[tuple[float, float], typer.Option(help="Seconds between words.")] = (5, 15),
    others: Annotated[float, typer.Option(help="Share of words that are not keywords.")] = 0.1,
    level: Annotated[
        tuple[float, float], typer.Option(help="Quietest and loudest noise, in dB.")
    ] = (-35, -25),
    hop: HopOption = None,
    reuse: ReuseOption = None,
    threshold: OnOption = None,
    soak: Annotated[
        bool, typer.Option("--soak", help="Memory, timing and a hash of the events instead.")
    ] = False,
    choose: Annotated[
        str | None,
        typer.Option(help="Search decision settings for this profile: fewest misses at 1 false/h."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="With --choose: put them into the model's config.json.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the stream and its truth to STEM.flac, STEM.json.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Misses, false accepts an hour, delay and compute on a long stream with known words."""
    from deltakwt.listen import stress as runs
    from deltakwt.listen.soak import soak as run_soak
    from deltakwt.listen.streams import Scenario, Stream, find_material

    if split not in ("test", "val"):
        raise DeltakwtError(f"--split {split}: must be test or val")
    scenario = Scenario(hours, seed, snr, gap, others, level)
    loaded = load_model(model)
    decision = decision_settings(loaded, hop, reuse, threshold)
    settings = runs.settings_of(loaded, profile or ([choose] if choose else None))
    if choose is not None and choose not in [setting.name for setting in settings]:
        raise DeltakwtError(f"--choose {choose}: is not among the profiles that --profile names")
    stream = Stream(find_material(data, noise, loaded.labels, split), scenario)
    if save is not None:
        _save(stream, save)
    with progress("listening (s)") as bar:
        if soak:
            if profile:
                loaded.profile = None if profile[0] == runs.DENSE else profile[0]
            found = run_soak(loaded, stream, decision, bar.update)
            print_json(found) if json else _show_soak(found)
            return
        courses = runs.stress(loaded, stream, settings, decision, bar.update)
    document = runs.report(loaded, stream, decision, courses)
    document["data"] = str(data)
    if choose is not None:
        document["chosen"] = _choose(loaded, stream, courses, choose, write)
    print_json(document) if json else _show(document)


def _choose(
    model: Model, stream: Stream, courses: list[Course], name: str, write: bool
) -> dict[str, Any]:
    """The settings found, and what they gave on this stream."""
    from deltakwt.listen.choose import choose
    from deltakwt.listen.spotter import decision_of, save_decision

    course = next(course for course in courses if course.setting.name == name)
    late = int(course.setting.steady.smooth)
    decision, result = choose(
        course.logits, model.labels, stream.truth, stream.scenario.hours, decision_of(model), late
    )
    if write:
        save_decision(model, decision)
    return {"profile": name, "decision": decision.to_json(), "decided": result.to_json()}


def _save(stream: Stream, stem: Path) -> None:
    """The stream for other programs, and what is in it."""
    import json

    import soundfile

    from deltakwt.core.config import SAMPLE_RATE

    truth = [
        {"label": w.label, "start": w.start, "end": w.end, "clip": "/".join(w.path.parts[-2:])}
        for w in stream.truth
    ]
    try:
        with soundfile.SoundFile(f"{stem}.flac", "w", SAMPLE_RATE, 1, "PCM_16") as file:
            for block in stream.blocks():
                file.write(block)
        Path(f"{stem}.json").write_text(json.dumps(truth, indent=0) + "\n", encoding="utf-8")
    except (OSError, soundfile.LibsndfileError) as error:
        raise DeltakwtError(f"{stem}: cannot be written: {error}") from error


def _show(document: dict[str, Any]) -> None:
    scenario = document["scenario"]
    rows = table(
        f"{document['model']} on {document['data']}: {scenario['hours']:g} h,"
        f" {document['words']} words, SNR {scenario['snr']:g} dB, seed {scenario['seed']}"
        f" (stream {document['stream']})",
        "",
        *(profile["profile"] for profile in document["profiles"]),
    )
    columns = [_column(profile) for profile in document["profiles"]]
    for name in columns[0]:
        rows.add_row(name, *(column[name] for column in columns))
    out = console()
    out.print(rows)
    if document["words"]:
        out.print(_words_table(document))
        out.print(_curve_table(document))
    if chosen := document.get("chosen"):
        decided = chosen["decided"]
        out.print(
            f"Chosen for {chosen['profile']}: {chosen['decision']}\n"
            f"misses {decided['miss_percent']:.1f}%,"
            f" false accepts {decided['false_accepts_per_hour']:.2f} an hour on this stream",
            highlight=False,
        )


def _column(profile: dict[str, Any]) -> dict[str, str]:
    """What there is to say of one profile."""
    own, second, compute = profile["decided"], profile["verified_by_dense"], profile["compute"]
    best, delay = profile["at_one_false_accept_per_hour"], own["delay_seconds"]
    return {
        "misses %": f"{own['miss_percent']:.1f}",
        "false accepts/h": f"{own['false_accepts_per_hour']:.2f}",
        "delay, median s": f"{delay['median']:.2f}" if delay else "",
        "delay, 95% s": f"{delay['p95']:.2f}" if delay else "",
        "verified by dense: misses %": f"{second['miss_percent']:.1f}" if second else "",
        "  false accepts/h": f"{second['false_accepts_per_hour']:.2f}" if second else "",
        "at 1 false/h: misses %": f"{best['miss_percent']:.1f}" if best["reached"] else "-",
        "  threshold": f"{best['on']:g}" if best["reached"] else "-",
        "MACs, % of dense": f"{compute['macs_percent']:.2f}",
        "MACs, M a second": f"{compute['macs_per_second'] / 1e6:.1f}",
        "windows reused %": f"{compute['reused_percent']:.1f}",
        "CPU, % of a core": f"{compute['cpu_percent']:.3f}",
    }


def _words_table(document: dict[str, Any]) -> Any:
    """Per word, each profile: misses and false accepts."""
    profiles = document["profiles"]
    rows = table(
        "Misses % / false accepts per hour, by word", "word", *(p["profile"] for p in profiles)
    )
    for word in profiles[0]["decided"]["words"]:
        cells = [p["decided"]["words"][word] for p in profiles]
        rows.add_row(
            word, *(f"{c['miss_percent']:.1f} / {c['false_accepts_per_hour']:.2f}" for c in cells)
        )
    return rows


def _curve_table(document: dict[str, Any]) -> Any:
    """The detection-error curve, thinned: --json has all of it."""
    profiles = document["profiles"]
    rows = table(
        "Misses % / false accepts per hour, by threshold",
        "threshold",
        *(p["profile"] for p in profiles),
    )
    for points in list(zip(*(p["curve"] for p in profiles), strict=True))[10::3]:
        cells = (f"{p['miss_percent']:.1f} / {p['false_accepts_per_hour']:.2f}" for p in points)
        rows.add_row(f"{points[0]['on']:g}", *cells)
    return rows


def _show_soak(found: dict[str, Any]) -> None:
    rows = table(f"{found['model']}: {found['heard_seconds'] / 3600:g} h in one stream", "", "")
    growth = found["memory_growth_bytes"]
    rows.add_row("events", str(found["events"]))
    rows.add_row("SHA-256 of the events", found["events_sha256"])
    rows.add_row("memory growth", "not known" if growth is None else f"{growth / 1e6:.2f} MB")
    for part in ("first", "last"):
        delay = found[f"median_delay_{part}_tenth"]
        rows.add_row(f"delay, {part} tenth", "" if delay is None else f"{delay:.3f} s")
    rows.add_row("wall clock", f"{found['wall_seconds']} s")
    rows.add_row("CPU", f"{found['cpu_seconds']} s")
    console().print(rows)
