"""`deltakwt robustness`: accuracy in noise, rooms and narrow bands, and for words off centre."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deltakwt.cli.common import console, fail, load_model, print_json, progress, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    DataOption,
    JsonOption,
    LimitOption,
    ModelOption,
    ProfilesOption,
    SeedOption,
    SplitOption,
    ThreadsOption,
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("robustness")(robustness)


def robustness(
    data: DataOption,
    model: ModelOption = DEFAULT_MODEL,
    profile: ProfilesOption = None,
    sounds: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Take environmental sounds for the background from this folder."
        ),
    ] = None,
    speech: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Take other talkers for the background from this folder."),
    ] = None,
    split: SplitOption = "test",
    limit: LimitOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = 0,
    json: JsonOption = False,
) -> None:
    """Measure accuracy in noise, in a room and on the telephone.

    Words that lie early or late in the clip are measured too.
    """
    from deltakwt.data.speech_commands import draw
    from deltakwt.evaluate.robustness import robustness as run
    from deltakwt.evaluate.stress import settings_of
    from deltakwt.provenance import command

    loaded = load_model(model)
    settings = settings_of(loaded, profile)
    clips = draw(data, split, "zero", seed=seed, limit=limit, labels=loaded.labels)
    with progress("conditions") as bar:
        result = run(
            loaded,
            clips,
            settings,
            sounds=sounds,
            speech=speech,
            threads=threads,
            progress=bar.update,
        )
    if json:
        about = {"model": model, "data": str(data), "seed": seed, "command": command()}
        print_json({**about, **result.to_json()})
    else:
        names = [str(setting) for setting in settings]
        title = f"{loaded.name} on spoken clips of {data.name}, accuracy in percent"
        rows = table(title, "", "clips", *names)
        for condition, by_setting in result.accuracy.items():
            cells = (f"{100 * by_setting[name]:.1f}" for name in names)
            rows.add_row(condition, str(result.clips[condition]), *cells)
        console().print(rows)
    for reason in result.failed:
        fail(reason)
    if result.failed:
        raise typer.Exit(1)
