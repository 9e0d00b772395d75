"""`deltakwt spot`: the words in sound files, or with --out those of very many files in a table."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, fail, load_model, print_json, progress, say, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    ModelOption,
    ProfileOption,
    ThreadsOption,
    ThresholdsOption,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.listen.spotter import Spotting

LONG = 30.0  # seconds of sound from which progress is shown

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write one row per word to this new .parquet or .jsonl file. Run the same command"
        " again to continue after an interruption.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="With --out: work on this Ray cluster, such as 10.0.0.1:6379 or auto, instead of on"
        " this machine.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("spot")(spot)


def spot(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Find words in these sound files. With --out, a folder means all sound files below"
            " it, a .txt file is a list of paths, one per line, and - is such a list on stdin.",
        ),
    ],
    model: ModelOption = DEFAULT_MODEL,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    arithmetic: ArithmeticOption = None,
    threads: ThreadsOption = 0,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON document on stdout. With --json=full it also holds the MACs and"
            " stored bytes of every layer and product.",
        ),
    ] = False,
    full: Annotated[bool, typer.Option("--full", hidden=True)] = False,  # of --json=full
    out: OutOption = None,
    ray: RayOption = None,
) -> None:
    """Find the words in sound files of any length, rate and format.

    A window of one second is run every 100 ms, and the words and times are those of `listen`. A
    file of at most one second is decided as one clip. A file that cannot be read is reported, and
    the others are still searched. With --out, the words of very many files are written to a
    table, on all cores; the same command continues an interrupted search.
    """
    loaded = load_model(model, profile, thresholds, arithmetic)
    if out is not None or ray is not None:
        _search_archive(loaded, files, out, ray, threads, full=full, json=json)
        return
    documents: list[dict[str, Any]] = []
    found: list[Spotting] = []
    stopped = False
    for file in files:
        try:
            spotting = _spot(loaded, file)
            counts = _counts(loaded, file, threads) if full else {}
        except DeltakwtError as error:
            fail(str(error))
            documents.append({"file": file, "events": [], "ms": None, "error": str(error)})
            continue
        except KeyboardInterrupt:  # what is finished is shown
            fail(f"{file}: interrupted")
            stopped = True
            break
        found.append(spotting)
        documents.append(_document(spotting) | counts)
    try:
        if json:
            print_json(documents)
        elif found:
            _print_table(found)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has ended, as `head` does. Python would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if stopped:
        raise typer.Exit(130)
    if len(found) < len(files):
        raise typer.Exit(1 if found else 2)


def _search_archive(
    model: Model,
    inputs: list[str],
    out: Path | None,
    ray: str | None,
    threads: int,
    *,
    full: bool,
    json: bool,
) -> None:
    """Search an archive and print what was found."""
    from deltakwt.archive.search import search_archive

    if out is None:
        raise DeltakwtError("--ray needs --out: name the .parquet or .jsonl file to write")
    if full:
        raise DeltakwtError("--json=full: --out writes words only; leave one of them out")
    try:
        with progress("searching", "bytes") as bar:
            found = search_archive(
                model, inputs, out, workers=threads, ray=ray, progress=bar.update
            )
    except KeyboardInterrupt:
        fail(f"{out}: interrupted; run the same command again to continue")
        raise typer.Exit(130) from None
    if json:
        print_json(found.to_json())
    else:
        say(
            f"{out}: {found.words:,} words in {found.files:,} files, {found.hours:.2f} hours of"
            f" sound; {found.unreadable:,} files could not be read; {found.elapsed:.1f} s"
        )
    if found.unreadable:
        raise typer.Exit(1 if found.unreadable < found.files else 2)


def _spot(model: Model, file: str) -> Spotting:
    from deltakwt.audio import duration

    seconds = duration(file)
    if seconds is None or seconds < LONG:
        return model.spot(file)
    with progress(f"{Path(file).name} (seconds)") as bar:
        return model.spot(file, progress=lambda done: bar.update(done, seconds))


def _counts(model: Model, file: str, threads: int) -> dict[str, Any]:
    from deltakwt.evaluate.counts import count_windows

    return count_windows(model, file, threads=threads).to_json()


def _document(spotting: Spotting) -> dict[str, Any]:
    return {
        "file": spotting.file,
        "events": [event.to_json() for event in spotting.events],
        "ms": round(spotting.ms, 3),
        "seconds": spotting.seconds,
        "windows": spotting.windows,
        "reused": spotting.reused,
        "macs_percent": round(spotting.macs_percent, 3),
        "macs_per_second": round(spotting.macs_per_second),
    }


def _print_table(found: list[Spotting]) -> None:
    rows = table("", "file", "word", "score", "start", "end", "ms", "MACs")
    for spotting in found:
        cost = [f"{spotting.ms:.2f}", f"{spotting.macs_percent:.1f}%"]
        name = str(spotting.file)
        for event in spotting.events:
            times = (f"{event.start:.2f}", f"{event.end:.2f}")
            rows.add_row(name, event.label, f"{event.score:.3f}", *times, *cost)
            name, cost = "", [""] * len(cost)  # once per file
        if not spotting.events:
            rows.add_row(name, "-", "", "", "", *cost)
    console().print(rows)
