"""An explained sound as a file: PNG, SVG, HTML or JSON, by the ending of its name."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from deltakwt.core.errors import DeltakwtError
from deltakwt.report import style
from deltakwt.report.explain.collect import Document
from deltakwt.report.explain.figure import caption, figure
from deltakwt.report.page import asset, fill
from deltakwt.weights.folder import write_atomically

ENDINGS = (".png", ".svg", ".html", ".json")


def check(path: Path) -> None:
    """Before the work, not after it."""
    if path.suffix.lower() not in ENDINGS:
        raise DeltakwtError(f"--out {path}: must end in {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise DeltakwtError(f"--out {path}: there is no folder {path.parent}")
    if path.suffix.lower() != ".json":
        style.pyplot()


def save(document: Document, path: Path, player: str = "") -> None:
    """`player`: the sound as a data: address, for HTML."""
    kind = path.suffix.lower()
    try:
        if kind == ".json":
            write_atomically(path, json.dumps(document, allow_nan=False).encode())
            return
        with TemporaryDirectory() as folder:
            made = figure(document)
            made = style.Figure("explain", made.draw, made.caption, made.thresholds)
            picture = style.save(made, Path(folder), stamp(document))
            content = (Path(folder) / f"explain{kind}").read_bytes() if kind != ".html" else b""
        write_atomically(path, content or _page(document, picture, player).encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from None


def stamp(document: Document) -> str:
    machine = document["machine"]
    return (
        f"{document['model']} · {document['file']} from {document['start']:g} s · thresholds:"
        f" {document['thresholds']['text']} · {machine['processor']}, {machine['kernels']} ·"
        f" {document['command']}"
    )


def _page(document: Document, picture: str, player: str) -> str:
    sound = f'<audio controls src="{player}"></audio>' if player else ""
    return fill(
        "explain/page.html",
        title=escape(document["file"]),
        style=asset("page.css"),
        script=asset("page.js"),
        summary=escape(caption(document)),
        player=sound,
        picture=picture,
        stamp=escape(stamp(document)),
    )
