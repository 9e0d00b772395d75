"""`deltakwt report` and `deltakwt explain`: the figures of a model, and of one sound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from deltakwt.cli.common import console, fail, load_model, print_json, progress, say, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    LimitOption,
    ModelOption,
    ProfileOption,
    SeedOption,
    SplitOption,
    ThreadsOption,
    ThresholdsOption,
    claim_folder,
)

if TYPE_CHECKING:
    from deltakwt.report.build import Document


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    app.command("report")(report)
    app.command("explain")(explain)


def report(
    data: DataOption,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Write figures, tables, JSON and page to this folder."
        ),
    ],
    model: ModelOption = DEFAULT_MODEL,
    split: SplitOption = "test",
    limit: LimitOption = None,
    seed: SeedOption = 0,
    clips: Annotated[
        int,
        typer.Option(
            "--recordings",
            metavar="N",
            min=0,
            max=200,
            help="Put at most this many recordings into the page; 0 for none.",
        ),
    ] = 24,
    sweep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Show this sweep.json, which `deltakwt sweep` wrote for the same model.",
        ),
    ] = None,
    times: Annotated[
        bool,
        typer.Option(
            "--times/--no-times",
            help="Measure time as well. Use --no-times on a machine that has other work to do.",
        ),
    ] = True,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    threads: ThreadsOption = 0,
    json: JsonOption = False,
) -> None:
    """Measure a model and write the paper's figures and tables.

    The folder gets every figure as PNG and SVG, every table as CSV, all numbers as JSON, and one
    HTML page with everything inside.
    """
    from deltakwt.report.build import ReportRequest, draw, measure

    loaded = load_model(model, profile, thresholds, "float")
    claim_folder(out)
    request = ReportRequest(data, out, split, seed, limit, clips, threads, sweep, times)
    with progress("measuring") as bar:
        document, sounds = measure(loaded, request, bar.update)
    with progress("drawing") as bar:
        draw(document, out, sounds, bar.update)
    unreadable = document["facts"]["data"]["unreadable"]
    for file in unreadable:
        fail(f"{file}: not readable as sound; left out")
    if json:
        print_json(document)
    else:
        _print(document, out)
    if unreadable:
        raise typer.Exit(1)


def _print(document: Document, out: Path) -> None:
    facts, own = document["facts"], document["accuracy"]
    title = f"{facts['model']['name']} on {facts['data']['name']}, {facts['data']['clips']:,} clips"
    rows = table(title, "setting", "accuracy", "MHSA MACs", "all MACs", "all, executed")
    rows.add_row("dense", f"{own['dense']['accuracy']:.2f}%", "100%", "100%", "100%")
    for point in own["points"]:
        rows.add_row(
            escape(point["name"]),
            f"{point['accuracy']:.2f}%",
            f"{point['mhsa_percent']:.1f}%",
            f"{point['model_percent']:.1f}%",
            f"{point['executed_model_percent']:.1f}%",
        )
    console().print(rows)
    say(out / "report.html")


def explain(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Explain this sound file, of any format and length."),
    ],
    model: ModelOption = DEFAULT_MODEL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write a .png, .svg, .html or .json file. Default: draw in the terminal.",
        ),
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Explain the second that starts here, in seconds. Default: the second with the"
            " highest score of a word.",
        ),
    ] = None,
    thresholds: ThresholdsOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> None:
    """Explain one second of sound: tokens, MACs and scores.

    It shows which tokens were recomputed, the MACs of each layer, and the score of each label.
    """
    from deltakwt.report import explain_view
    from deltakwt.report.build import chosen_setting
    from deltakwt.report.explain import check_out, save
    from deltakwt.report.explain import explain as explained
    from deltakwt.report.html import audio_address

    if out is not None:
        check_out(out)
    loaded = load_model(model, profile, thresholds, "float")
    document, sound = explained(loaded, chosen_setting(loaded), file, at)
    if out is not None:
        save(document, out, audio_address(sound))
    if json:
        print_json(document)
    elif out is not None:
        say(out)
    else:
        explain_view.show(document, console())
