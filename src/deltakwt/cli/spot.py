"""`deltakwt spot`: the words in sound files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    JsonOption,
    ModelOption,
    ProfileOption,
    ThreadsOption,
    ThresholdsOption,
    console,
    fail,
    load_model,
    print_json,
    progress,
    table,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.listen.spotting import Spotting

LONG = 30.0  # seconds of sound from which progress is shown


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("spot")(spot)


def spot(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Sound files.")],
    model: ModelOption = DEFAULT_MODEL,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    threads: ThreadsOption = 0,
    json: JsonOption = False,
) -> None:
    """Spot the words in sound files of any length, rate and format.

    Up to one second is classified as one clip; longer sound is heard through a one-second
    window every 100 ms. A file that cannot be read is reported and the rest goes on.
    """
    loaded = load_model(model, profile, thresholds)
    documents: list[dict[str, Any]] = []
    found: list[Spotting] = []
    stopped = False
    for file in files:
        try:
            spotting = _spot(loaded, file, threads)
        except DeltakwtError as error:
            fail(str(error))
            documents.append({"file": file, "events": [], "ms": None, "error": str(error)})
            continue
        except KeyboardInterrupt:  # what is finished is shown
            fail(f"{file}: interrupted")
            stopped = True
            break
        found.append(spotting)
        documents.append(_document(spotting))
    if json:
        print_json(documents)
    elif found:
        _print_table(found)
    if stopped:
        raise typer.Exit(130)
    if len(found) < len(files):
        raise typer.Exit(1 if found else 2)


def _spot(model: Model, file: str, threads: int) -> Spotting:
    from deltakwt.audio import duration

    seconds = duration(file)
    if seconds is None or seconds < LONG:
        return model.spot(file, threads=threads)
    with progress(f"{Path(file).name} (seconds)") as bar:
        return model.spot(file, threads=threads, progress=lambda done: bar.update(done, seconds))


def _document(spotting: Spotting) -> dict[str, Any]:
    counts = {} if spotting.tally is None else spotting.tally.to_json()
    return {
        "file": spotting.file,
        "events": [asdict(event) for event in spotting.events],
        "ms": spotting.ms,
        "seconds": spotting.seconds,
        "windows": spotting.windows,
        **counts,
    }


def _print_table(found: list[Spotting]) -> None:
    counted = any(spotting.macs for spotting in found)
    rows = table("", "file", "word", "score", "start", "end", "ms", *(["MACs"] if counted else []))
    for spotting in found:
        cost = [f"{spotting.ms:.2f}"]
        if counted:
            cost.append(f"{spotting.macs.model_percent:.1f}%" if spotting.macs else "")
        name = str(spotting.file)
        for event in spotting.events:
            times = (f"{event.start:.2f}", f"{event.end:.2f}")
            rows.add_row(name, event.label, f"{event.score:.3f}", *times, *cost)
            name, cost = "", [""] * len(cost)  # once a file
        if not spotting.events:
            rows.add_row(name, "-", "", "", "", *cost)
    console().print(rows)
