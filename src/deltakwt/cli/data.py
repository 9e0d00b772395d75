"""`deltakwt data`: download data sets, describe data folders, and state their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deltakwt.cli.common import console, note, print_json, progress, say, table
from deltakwt.cli.options import JsonOption, claim_folder


def register(app: typer.Typer) -> None:
    """Add the verb."""
    data = typer.Typer(
        help="Download data sets and describe data folders.",
        no_args_is_help=True,
    )
    data.command("get")(get)
    data.command("info")(info)
    data.command("source")(source)
    app.add_typer(data, name="data")


def get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Download this data set: v0.01, v0.02, test-v0.01 or test-v0.02."
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Put the data set into this folder.")
    ] = Path("data"),
    json: JsonOption = False,
) -> None:
    """Download and unpack Speech Commands. An interrupted download continues the next time."""
    from deltakwt.data import sources

    corpus = sources.find(name)
    note(sources.LICENCE)
    folder = out / corpus.folder
    new = not folder.exists()
    if new:
        claim_folder(out)
        with progress(f"downloading {name}", "bytes") as bar:
            archive = sources.download(corpus, out, bar.update)
        with progress(f"unpacking {name}", "bytes") as bar:
            sources.extract(corpus, archive, bar.update)
    if json:
        print_json({"name": name, "path": str(folder), "new": new, "licence": sources.LICENCE})
    else:
        say(f"{folder}: {'ready' if new else 'already there'}")


def info(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Describe this folder of word folders or of recordings."
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Describe a data folder.

    Its source is shown, and its words or its hours of recordings.
    """
    from deltakwt.data.sources import read_source

    document = _describe(folder)
    stated = read_source(folder)
    if json:
        print_json(document | {"source": stated.to_json()})
        return
    if "words" in document:
        say(f"{folder}: {document['layout']}, {document['clips']:,} clips; {stated}")
        _print_words(document)
        return
    say(
        f"{folder}: {document['files']:,} recordings, {document['hours']:.1f} hours,"
        f" {document['speakers']:,} speakers or folders; {stated}"
    )
    for file, reason in document["skipped"].items():
        note(f"{file}: {reason}")


def source(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Describe this data folder.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Record this name of the data set.")],
    licence: Annotated[
        str, typer.Option(metavar="LICENCE", help="Record this licence, such as 'CC BY 4.0'.")
    ],
    url: Annotated[
        str, typer.Option(metavar="URL", help="Record this web address. Default: none.")
    ] = "",
    attribution: Annotated[
        str, typer.Option(metavar="TEXT", help="Record these authors. Default: none.")
    ] = "",
) -> None:
    """Record the source of a data folder in DIR/SOURCE.json.

    The cards of models that are trained on this folder quote it.
    """
    from deltakwt.data.sources import DataSource, write_source

    path = write_source(folder, DataSource(name, licence, url, attribution))
    say(f"{path}: written")


def _describe(folder: Path) -> dict[str, Any]:
    from deltakwt.core.errors import DeltakwtError
    from deltakwt.data.cache import describe_recordings
    from deltakwt.data.speech_commands import describe, is_word_folder

    if not folder.is_dir():
        raise DeltakwtError(f"{folder}: no such folder; see: deltakwt data get --help")
    return describe(folder) if is_word_folder(folder) else describe_recordings(folder)


def _print_words(document: dict[str, Any]) -> None:
    rows = table("", "word", "clips")
    for word, clips in document["words"].items():
        rows.add_row(word, f"{clips:,}")
    rows.add_section()
    for split, clips in document["splits"].items():
        rows.add_row(f"{split} split", f"{clips:,}")
    rows.add_row("noise recordings", str(len(document["noise_recordings"])))
    console().print(rows)
