"""`deltakwt report` and `deltakwt explain`: the figures of a model, and of one sound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    DataOption,
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
    from deltakwt.report import Document


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("report")(report)
    app.command("explain")(explain)


def report(
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", help="Folder for figures, tables, JSON and page.")],
    model: ModelOption = DEFAULT_MODEL,
    split: Annotated[str, typer.Option(help="test or val.")] = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="Clips drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    clips: Annotated[
        int, typer.Option(min=0, max=200, help="Recordings put into the page (0: none).")
    ] = 24,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    threads: ThreadsOption = 0,
    json: JsonOption = False,
) -> None:
    """The paper's figures and tables, and ours: PNG, SVG, CSV, JSON and one HTML page."""
    from deltakwt.report import Request, draw, measure

    if split not in ("test", "val"):
        raise DeltakwtError(f"--split {split}: must be test or val")
    loaded = load_model(model, profile, thresholds)
    request = Request(data, out, split, seed, limit, clips, threads)
    with progress("measuring") as bar:
        document, sounds = measure(loaded, request, bar.update)
    with progress("drawing") as bar:
        draw(document, out, sounds, bar.update)
    unreadable = document["setting"]["data"]["unreadable"]
    for file in unreadable:
        fail(f"{file}: not readable as sound; left out")
    if json:
        print_json(document)
    else:
        _print(document, out)
    if unreadable:
        raise typer.Exit(1)


def _print(document: Document, out: Path) -> None:
    facts, own = document["setting"], document["sweep"]
    title = f"{facts['model']['name']} on {facts['data']['name']}, {facts['data']['clips']:,} clips"
    rows = table(title, "setting", "accuracy", "MHSA MACs", "all MACs")
    rows.add_row("dense", f"{own['dense']['accuracy']:.2f}%", "100%", "100%")
    for point in own["points"]:
        rows.add_row(
            point["name"],
            f"{point['accuracy']:.2f}%",
            f"{point['mhsa_percent']:.1f}%",
            f"{point['model_percent']:.1f}%",
        )
    console().print(rows)
    console().print(f"{out / 'report.html'}", soft_wrap=True, highlight=False)


def explain(
    file: Annotated[Path, typer.Argument(help="Any sound file.")],
    model: ModelOption = DEFAULT_MODEL,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A .png, .svg, .html or .json; else drawn here."),
    ] = None,
    at: Annotated[
        float | None, typer.Option(min=0, help="Second to start at; else where a word is surest.")
    ] = None,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """One sound explained: the tokens that were recomputed, the MACs of each layer, the scores."""
    from deltakwt.report import chosen
    from deltakwt.report.explain import collect, files, terminal
    from deltakwt.report.sounds import encoded

    if out is not None:
        files.check(out)
    loaded = load_model(model, profile, thresholds)
    document, sound = collect.explain(loaded, chosen(loaded), file, at)
    if out is not None:
        files.save(document, out, encoded(sound))
    if json:
        print_json(document)
    elif out is not None:
        console().print(f"{out}", soft_wrap=True, highlight=False)
    else:
        terminal.show(document, console())
