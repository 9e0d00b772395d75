"""`deltakwt models import`: the folder that was written, or the table of what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deltakwt.cli.common import console, note, print_json, say, table
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from rich.table import Table

    from deltakwt.weights.mapping import Row

MAX_LABEL_FILE = 1 << 20  # bytes


def import_and_show(
    file: Path,
    out: Path,
    labels: str | None,
    heads: int | None,
    check: Path | None,
    is_table: bool,
    is_json: bool,
) -> None:
    """Import a model, and print what was written."""
    from deltakwt.weights.importing import import_model
    from deltakwt.weights.mapping import DoesNotFit

    try:
        found = import_model(file, out, heads=heads, labels=_labels(labels), check=check)
    except DoesNotFit as problem:
        from rich.console import Console

        Console(stderr=True).print(_table(problem.rows))
        raise
    weights = found.weights
    parameters = sum(tensor.size for tensor in weights.tensors.values())
    if is_json:
        document = {"path": str(out), "dim": weights.config.dim, "parameters": parameters}
        if found.difference is not None:
            document["check_difference"] = found.difference
        print_json(document)
        return
    if is_table:
        console().print(_table(found.rows))
    say(f"{out}: {parameters:,} parameters, width {weights.config.dim}")
    if found.difference is not None:
        say(f"{check}: logits agree, largest difference {found.difference:.2g}")
    for text in found.notes:
        note(f"assumed: {text}")


def _labels(text: str | None) -> tuple[str, ...] | None:
    """Return the labels of a text file, or of a list with commas."""
    from deltakwt.files import read_bytes
    from deltakwt.weights.folder import check_labels

    if text is None:
        return None
    if "," in text:
        parts = text.split(",")
    else:
        try:
            content = read_bytes(text, MAX_LABEL_FILE).decode()
        except UnicodeError:
            raise DeltakwtError(f"--labels {text}: is not UTF-8 text") from None
        parts = content.splitlines()
    return check_labels("--labels", [part.strip() for part in parts if part.strip()])


def _table(rows: list[Row]) -> Table:
    made = table("", "tensor in the file", "shape", "taken for")
    for row in rows:
        made.add_row(row.name, "x".join(map(str, row.shape)) or "1", row.role)
    return made
