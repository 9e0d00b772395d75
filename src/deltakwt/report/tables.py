"""A table once: to a CSV file, and to the page, where a tap on a heading sorts it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

Cell = str | float | int | None


@dataclass(frozen=True)
class Column:
    """A heading, how its numbers are printed, and the heading above it, if any."""

    title: str
    form: str = ""  # of format(); empty: text
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    thresholds: str = ""  # in force when its numbers were measured
    players: Sequence[str] = ()  # a sound a row, as data: addresses

    def save(self, folder: Path) -> None:
        """Write <name>.csv with every digit."""
        with (folder / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(f"{c.group} {c.title}".strip() for c in self.columns)
            out.writerows(self.rows)

    def html(self) -> str:
        """The table as the page shows it."""
        body = "\n".join(
            self._row(row, self.players[i] if i < len(self.players) else None)
            for i, row in enumerate(self.rows)
        )
        return (
            f'<div class="scroll"><table id="{self.name}" class="sortable">\n'
            f"<thead>{self._groups()}<tr>{self._heads()}</tr></thead>\n"
            f"<tbody>\n{body}\n</tbody></table></div>"
        )

    def _groups(self) -> str:
        if not any(column.group for column in self.columns):
            return ""
        cells, start = [], 0
        names = [column.group for column in self.columns]
        if self.players:
            names.append("")
        while start < len(names):
            end = start
            while end < len(names) and names[end] == names[start]:
                end += 1
            cells.append(f'<th colspan="{end - start}" class="group">{escape(names[start])}</th>')
            start = end
        return f"<tr>{''.join(cells)}</tr>"

    def _heads(self) -> str:
        heads = [
            f'<th scope="col" class="{"number" if column.form else "text"}" aria-sort="none">'
            f"<button>{escape(column.title)}</button></th>"
            for column in self.columns
        ]
        if self.players:
            heads.append('<th scope="col">listen</th>')
        return "".join(heads)

    def _row(self, row: Sequence[Cell], player: str | None) -> str:
        cells = [_cell(value, column) for value, column in zip(row, self.columns, strict=True)]
        if self.players:
            sound = f'<audio controls preload="none" src="{player}"></audio>' if player else ""
            cells.append(f"<td>{sound}</td>")
        return f"<tr>{''.join(cells)}</tr>"


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return '<td class="number" data-sort="">–</td>' if column.form else "<td></td>"
    if column.form and not isinstance(value, str):
        return f'<td class="number" data-sort="{value}">{format(value, column.form)}</td>'
    text = str(value)
    return f'<td class="long">{escape(text)}</td>' if len(text) > 24 else f"<td>{escape(text)}</td>"
