"""`deltakwt spot --out`: the words of very many files, written to a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import fail, print_json, progress, say
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.core.model import Model

OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
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


def search(
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
