"""`deltakwt stress`: misses and false accepts on long streams, and the choice of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, fail, load_model, print_json, progress, table
from deltakwt.cli.listen import decision_settings, gate_of, second_stage
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    DataOption,
    GateOption,
    HopOption,
    JsonOption,
    ModelOption,
    OnOption,
    ProfilesOption,
    ReuseOption,
    SeedOption,
    SplitOption,
    VerifyOption,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.evaluate.negatives import NegativeStream
    from deltakwt.evaluate.streams import PlannedStream
    from deltakwt.evaluate.stress import SettingResult


@dataclass(frozen=True)
class StressArguments:
    """The options of `deltakwt stress`."""

    data: DataOption
    model: ModelOption = DEFAULT_MODEL
    profile: ProfilesOption = None
    noise: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Take the background noise from this folder. Default: _background_noise_ of DATA.",
        ),
    ] = None
    negatives: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Count false accepts on the sound files below this folder, which holds no"
            " keywords, or has transcripts (*.trans.txt). Can be repeated.",
        ),
    ] = None
    split: SplitOption = "test"
    hours: Annotated[
        float, typer.Option(metavar="HOURS", help="Make a stream of this length, in hours.")
    ] = 1.0
    seed: SeedOption = 1
    snr: Annotated[
        float,
        typer.Option(metavar="DB", help="Use this signal-to-noise ratio of the words, in dB."),
    ] = 10.0
    gap: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="SECONDS SECONDS",
            help="Place words this far apart: shortest and longest time, in seconds.",
        ),
    ] = (5, 15)
    others: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Make this share of the words non-keywords, 0 to 1."),
    ] = 0.1
    level: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="DB DB", help="Vary the noise between these levels, in dB of full scale."
        ),
    ] = (-35, -25)
    hop: HopOption = None
    reuse: ReuseOption = None
    threshold: OnOption = None
    gate: GateOption = None
    verify: VerifyOption = None
    max_false_accepts: Annotated[
        float,
        typer.Option(
            metavar="N",
            min=0,
            help="Allow this many false accepts per hour when a threshold is chosen: on the"
            " negatives, or on the stream if there are none.",
        ),
    ] = 1.0
    choose: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Find the decision settings of this profile that miss the fewest words within"
            " --max-false-accepts.",
        ),
    ] = None
    per_word: Annotated[
        bool,
        typer.Option("--per-word", help="With --choose: find a threshold for every word."),
    ] = False
    write: Annotated[
        bool,
        typer.Option("--write", help="With --choose: write them into the model's config.json."),
    ] = False
    curve: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the detection-error curves as a PNG file."),
    ] = None
    soak: Annotated[
        bool,
        typer.Option(
            "--soak",
            help="Run the first profile only, and report the growth of memory, the drift of the"
            " delays, and a hash of the events.",
        ),
    ] = False
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM", help="Write the stream to STEM.flac and its words to STEM.json."
        ),
    ] = None
    arithmetic: ArithmeticOption = None
    json: JsonOption = False


def stress(given: StressArguments) -> None:
    """Measure misses, false accepts and compute on a long stream."""
    from deltakwt.evaluate import stress as runs
    from deltakwt.evaluate.negatives import find_negatives
    from deltakwt.evaluate.soak import soak
    from deltakwt.evaluate.streams import PlannedStream, Scenario, find_material, save_stream

    scenario = Scenario(given.hours, given.seed, given.snr, given.gap, given.others, given.level)
    loaded = load_model(given.model, arithmetic=given.arithmetic)
    decision = decision_settings(loaded, given.hop, given.reuse, given.threshold)
    choose, verify = given.choose, given.verify
    settings = runs.settings_of(loaded, given.profile or ([choose] if choose else None))
    if choose is not None and choose not in map(str, settings):
        raise DeltakwtError(f"--choose {choose}: is not among the profiles that --profile names")
    if verify is not None:
        second_stage(loaded, verify)  # a wrong name is reported before hours of work
    gate = gate_of(loaded, given.gate)
    if given.soak and (gate is not None or verify is not None):
        raise DeltakwtError("--soak: runs the model alone; leave out --gate and --verify")
    quiet = [find_negatives(folder) for folder in given.negatives or []]
    material = find_material(given.data, given.noise, loaded.labels, given.split)
    stream = PlannedStream(material, scenario)
    if given.save is not None:
        save_stream(stream, given.save)
    if given.soak:
        first = settings[0] if given.profile else None
        with progress("seconds of sound") as bar:
            found = soak(loaded, stream, first, decision, bar.update)
        print_json(found) if given.json else _show_soak(found)
        return
    second = None if verify is None else lambda: second_stage(loaded, verify)
    with progress("seconds of sound") as bar:
        update = bar.update
        results = runs.stress(
            loaded,
            stream,
            settings,
            decision,
            negatives=quiet,
            gate=gate,
            second=second,
            progress=update,
        )
    document = runs.report(loaded, stream, decision, results, quiet, given.max_false_accepts)
    document |= {"data": str(given.data), "gate": given.gate, "verify": verify}
    if choose is not None:
        result = next(one for one in results if one.name == choose)
        document["chosen"] = _choose(given, loaded, result, stream, quiet)
    if given.curve is not None:
        runs.draw_curve(document, str(given.curve))
    print_json(document) if given.json else _show(document)
    failed = [reason for one in quiet for reason in one.failed]
    for reason in failed:
        fail(reason)
    if failed:
        raise typer.Exit(1)


def _choose(
    given: StressArguments,
    model: Model,
    result: SettingResult,
    stream: PlannedStream,
    quiet: list[NegativeStream],
) -> dict[str, Any]:
    """Find the best decision settings, and write them if asked to."""
    from deltakwt.evaluate.choose import choose
    from deltakwt.listen.spotter import decision_of, save_decision

    best, point = choose(
        result,
        stream.truth,
        given.hours,
        decision_of(model),
        negatives=quiet,
        max_false=given.max_false_accepts,
        per_word=given.per_word,
    )
    if given.write:
        save_decision(model, best)
    return {"setting": given.choose, "decision": best.to_json(), **point.to_json()}


def _show(document: dict[str, Any]) -> None:
    scenario, settings = document["scenario"], document["settings"]
    rows = table(
        f"{document['model']} on {document['data']}: {scenario['hours']:g} h,"
        f" {document['words']} words, SNR {scenario['snr']:g} dB, seed {scenario['seed']}"
        f" (stream {document['stream']})",
        "",
        *(one["setting"] for one in settings),
    )
    columns = [_column(document, one) for one in settings]
    for name in columns[0]:
        rows.add_row(name, *(column[name] for column in columns))
    out = console()
    out.print(rows)
    if document["words"]:
        out.print(_words_table(settings))
        out.print(_curve_table(settings))
    if chosen := document.get("chosen"):
        out.print(
            f"Chosen for {chosen['setting']}: {chosen['decision']}\n"
            f"misses {chosen['miss_percent']:.1f}%,"
            f" {chosen['false_accepts_per_hour']:.2f} false accepts and"
            f" {chosen['confusions_per_hour']:.2f} confusions per hour on this sound"
        )


def _column(document: dict[str, Any], one: dict[str, Any]) -> dict[str, str]:
    """Return the rows of one setting."""
    compute, best = one["compute"], one["at_max_false_accepts"]
    cells = _outcome_cells(document, one["decided"], "")
    delay = one["decided"]["delay_seconds"]
    cells["delay, median s"] = f"{delay['median']:.2f}" if delay else ""
    cells["delay, 95% s"] = f"{delay['p95']:.2f}" if delay else ""
    if second := one["second_stage"]:
        cells |= _outcome_cells(document, second["decided"], "verified: ")
        cells["second stage, runs/h"] = f"{second['cost']['runs_per_hour']:.1f}"
        cells["second stage, MACs, M/s"] = f"{second['cost']['macs_per_second'] / 1e6:.2f}"
        cells["second stage, CPU, % of a core"] = f"{second['cost']['cpu_percent']:.3f}"
    limit = f"at {best['max_false_accepts_per_hour']:g} false accepts/h: "
    cells[f"{limit}misses %"] = f"{best['miss_percent']:.1f}" if best["reached"] else "-"
    cells[f"{limit}threshold"] = f"{best['on']:g}" if best["reached"] else "-"
    cells["MACs, % of dense"] = f"{compute['macs_percent']:.2f}"
    cells["MACs, M/s"] = f"{compute['macs_per_second'] / 1e6:.1f}"
    cells["windows reused %"] = f"{compute['reused_percent']:.1f}"
    cells["CPU, % of a core"] = f"{compute['cpu_percent']:.3f}"
    for folder, negative in zip(document["negatives"], one["decided"]["negatives"], strict=True):
        name, compute = Path(folder["folder"]).name, negative["compute"]
        cells[f"windows reused %, {name}"] = f"{compute['reused_percent']:.1f}"
        cells[f"CPU, % of a core, {name}"] = f"{compute['cpu_percent']:.3f}"
    return cells


def _outcome_cells(document: dict[str, Any], found: dict[str, Any], head: str) -> dict[str, str]:
    """Return misses, false accepts on each kind of sound, and confusions."""
    cells = {
        f"{head}misses %": f"{found['miss_percent']:.1f}",
        f"{head}false accepts/h, stream": f"{found['false_accepts_per_hour']:.2f}",
    }
    for folder, one in zip(document["negatives"], found["negatives"], strict=True):
        name = f"{head}false accepts/h, {Path(folder['folder']).name} ({one['hours']:.2f} h)"
        cells[name] = f"{one['false_accepts_per_hour']:.2f}"
    cells[f"{head}confusions/h"] = f"{found['confusions_per_hour']:.2f}"
    cells[f"{head}repeats"] = str(found["repeats"])
    return cells


def _words_table(settings: list[dict[str, Any]]) -> Any:
    """Return a table of misses and false accepts by word."""
    rows = table(
        "Misses % / false accepts per hour on the stream, by word",
        "word",
        *(one["setting"] for one in settings),
    )
    for word in settings[0]["decided"]["words"]:
        cells = [one["decided"]["words"][word] for one in settings]
        rows.add_row(
            word, *(f"{c['miss_percent']:.1f} / {c['false_accepts_per_hour']:.2f}" for c in cells)
        )
    return rows


def _curve_table(settings: list[dict[str, Any]]) -> Any:
    """Return every third point of the detection-error curves; --json has all."""
    rows = table(
        "Misses % / false accepts per hour, by threshold",
        "threshold",
        *(one["setting"] for one in settings),
    )
    for points in list(zip(*(one["curve"] for one in settings), strict=True))[10::3]:
        cells = (f"{p['miss_percent']:.1f} / {p['false_accepts_per_hour']:.2f}" for p in points)
        rows.add_row(f"{points[0]['on']:g}", *cells)
    return rows


def _show_soak(found: dict[str, Any]) -> None:
    rows = table(f"{found['model']}: {found['seconds'] / 3600:g} h in one stream", "", "")
    growth = found["memory_growth_bytes"]
    rows.add_row("events", str(found["events"]))
    rows.add_row("SHA-256 of the events", found["events_sha256"])
    rows.add_row("memory growth", "unknown" if growth is None else f"{growth / 1e6:.2f} MB")
    for part in ("first", "last"):
        delay = found[f"median_delay_{part}_tenth"]
        rows.add_row(f"delay, {part} tenth", "" if delay is None else f"{delay:.3f} s")
    rows.add_row("wall clock", f"{found['wall_seconds']} s")
    rows.add_row("CPU", f"{found['cpu_seconds']} s")
    console().print(rows)
