"""The parts of a report: sections, tables and figures.

A section first collects numbers, which go into the JSON document, and then makes its text, figures
and tables from that document alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from deltakwt.files import write_atomically
from deltakwt.report.figures import Figure
from deltakwt.report.html import Html, element, join, prose
from deltakwt.report.study import Study

Numbers = dict[str, Any]
Cell = str | float | int | None
LONG_TEXT = 24  # characters; longer cells are wrapped


@dataclass(frozen=True)
class Column:
    """The heading of a column, how its numbers are printed, and a heading above it, if any."""

    title: str
    form: str = ""  # of format(); empty: text
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers: a CSV file, and a table of the page that can be sorted."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    setting: str = ""  # with which its numbers were measured
    players: Sequence[str] = ()  # a sound for each row, as data: addresses

    def save(self, folder: Path) -> None:
        """Write <name>.csv with every digit."""
        text = io.StringIO(newline="")
        out = csv.writer(text, lineterminator="\n")
        out.writerow(f"{c.group} {c.title}".strip() for c in self.columns)
        out.writerows(self.rows)
        write_atomically(folder / f"{self.name}.csv", text.getvalue().encode())

    def html(self) -> Html:
        """Return the table as the page shows it."""
        body = [
            self._row(row, self.players[i] if i < len(self.players) else "")
            for i, row in enumerate(self.rows)
        ]
        head = element("thead", self._groups(), element("tr", *self._heads()))
        return element(
            "div",
            element("table", head, element("tbody", *body), id=self.name, class_="sortable"),
            class_="scroll",
        )

    def _groups(self) -> Html:
        if not any(column.group for column in self.columns):
            return Html()
        names = [column.group for column in self.columns] + [""] * bool(self.players)
        cells = [
            element("th", name, colspan=len(list(same)), class_="group")
            for name, same in groupby(names)
        ]
        return element("tr", *cells)

    def _heads(self) -> list[Html]:
        heads = [
            element("th", element("button", column.title), scope="col", aria_sort="none",
                    class_="number" if column.form else "text")
            for column in self.columns
        ]  # fmt: skip
        return heads + [element("th", "listen", scope="col")] * bool(self.players)

    def _row(self, row: Sequence[Cell], player: str) -> Html:
        cells = [_cell(value, column) for value, column in zip(row, self.columns, strict=True)]
        if self.players:
            sound = element("audio", controls=True, preload="none", src=player) if player else ""
            cells.append(element("td", sound))
        return element("tr", *cells)


def _cell(value: Any, column: Column) -> Html:
    if value is None:
        return element("td", "–", class_="number", data_sort="") if column.form else element("td")
    if column.form and not isinstance(value, str):
        return element("td", format(value, column.form), class_="number", data_sort=value)
    text = str(value)
    return element("td", text, class_="long" if len(text) > LONG_TEXT else None)


@dataclass(frozen=True)
class Content:
    """What a section shows. Everything in it comes from the JSON document of the report."""

    title: str
    counterpart: str  # in the paper
    text: str  # for html.prose
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()

    def html(self, name: str, pictures: dict[str, Html]) -> Html:
        """Return the section for the page; `pictures` are the figures' SVGs by name."""
        shown = [_figure(figure, pictures[figure.name]) for figure in self.figures]
        return element(
            "section",
            element("h2", self.title),
            element("p", f"In the paper: {self.counterpart}.", class_="counterpart"),
            prose(self.text),
            element("div", *shown, class_="figures") if shown else "",
            *(_table(table) for table in self.tables),
            id=name,
        )


def _figure(figure: Figure, picture: Html) -> Html:
    caption = element("figcaption", figure.caption, _measured(figure.setting))
    return element("figure", picture, caption, id=f"figure-{figure.name}", class_="card")


def _table(table: Table) -> Html:
    caption = element("figcaption", table.caption, _measured(table.setting))
    return element("figure", join(table.html(), caption), class_="card table")


def _measured(setting: str) -> Html:
    return element("p", f"Setting: {setting}.", class_="measured") if setting else Html()


@dataclass(frozen=True)
class Section:
    """`collect` measures; `show` gets the whole JSON document and makes the content from it."""

    name: str  # its key in the JSON document
    collect: Callable[[Study], Numbers]
    show: Callable[[Numbers], Content]
