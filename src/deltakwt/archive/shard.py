"""The rows of one shard: what a worker does, on this machine or on another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.core.setting import Setting
from deltakwt.text import one_line

Document = dict[str, Any]
COLUMNS = (
    *("file", "word", "score", "start", "end", "time"),
    *("seconds", "model", "setting", "error"),
)


@dataclass(frozen=True)
class Task:
    """How files are searched. It can be pickled, so that other processes can do the same."""

    source: str  # of the model
    name: str
    setting: Setting
    arithmetic: str

    def model(self) -> Model:
        """Return the model, loaded and set."""
        model = load(self.source, arithmetic=self.arithmetic)
        model.name, model.setting = self.name, self.setting
        return model


def search_files(
    model: Model,
    files: Sequence[str],
    begin: Callable[[int], None] = lambda number: None,
    known: dict[int, str] | None = None,
) -> list[Document]:
    """Return the rows of some files, in their order.

    `begin` is called with the number of each file before it is opened. `known` are files that
    must not be opened, with the reason.
    """
    rows: list[Document] = []
    for number, file in enumerate(files):
        if known and number in known:
            rows.append(_row(model, file, error=known[number]))
            continue
        begin(number)
        rows += _search(model, file)
    return rows


def _search(model: Model, file: str) -> list[Document]:
    """Return a row for every word; one without a word if there is none, or with the error."""
    try:
        found = model.spot(file)
    except DeltakwtError as error:
        return [_row(model, file, error=one_line(error))]
    return [
        _row(
            model,
            file,
            word=event.label,
            score=round(event.score, 6),
            start=event.start,
            end=event.end,
            time=event.time,
            seconds=found.seconds,
        )
        for event in found.events
    ] or [_row(model, file, seconds=found.seconds)]


def _row(model: Model, file: str, **values: Any) -> Document:
    # Names of files are bytes. Those that are not UTF-8 are shown with escapes.
    readable = file.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    known = {"file": readable, "model": model.name, "setting": str(model.setting), **values}
    return {column: known.get(column) for column in COLUMNS}
