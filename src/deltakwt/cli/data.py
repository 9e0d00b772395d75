"""`deltakwt data`: get and look at Speech Commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from deltakwt.cli.common import JsonOption, console, print_json, progress, table


def register(app: typer.Typer) -> None:
    """Add the verb."""
    data = typer.Typer(help="Speech Commands: get, info.", no_args_is_help=True)
    data.command("get")(get)
    data.command("info")(info)
    app.add_typer(data, name="data")


def get(
    name: Annotated[str, typer.Argument(help="v0.01, v0.02, test-v0.01 or test-v0.02.")],
    out: Annotated[Path, typer.Option(help="The folder to put it in.")] = Path("data"),
    json: JsonOption = False,
) -> None:
    """Download and unpack Speech Commands. Interrupted, it continues the next time."""
    from deltakwt.data import corpora

    corpus = corpora.find(name)
    print(corpora.LICENCE, file=sys.stderr)
    folder = out / corpus.folder
    new = not folder.exists()
    if new:
        with progress(f"downloading {name}", "bytes") as bar:
            archive = corpora.download(corpus, out, bar.update)
        with progress(f"unpacking {name}", "bytes") as bar:
            corpora.extract(corpus, archive, bar.update)
    if json:
        print_json({"name": name, "path": str(folder), "new": new, "licence": corpora.LICENCE})
    else:
        print(f"{folder}: {'ready' if new else 'is there already'}")


def info(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A Speech Commands folder.")],
    json: JsonOption = False,
) -> None:
    """What a data folder holds: words, splits, noises."""
    from deltakwt.data.speech_commands import describe

    document = describe(folder)
    if json:
        print_json(document)
        return
    print(f"{folder}: {document['layout']}, {document['clips']:,} clips")
    rows = table("", "word", "clips")
    for word, clips in document["words"].items():
        rows.add_row(word, f"{clips:,}")
    rows.add_section()
    for split, clips in document["splits"].items():
        rows.add_row(f"{split} split", f"{clips:,}")
    rows.add_row("noise recordings", str(len(document["noise_recordings"])))
    console().print(rows)
