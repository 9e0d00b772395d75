"""The page of a report and its parts: sections, tables and figures.

A section first collects numbers, which go into the JSON document, and then makes its text, figures
and tables from that document alone. The page is one HTML file with everything inside.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltakwt.files import write_atomically
from deltakwt.report import html
from deltakwt.report.figures import Figure
from deltakwt.report.html import Html, element, join, prose

if TYPE_CHECKING:
    from deltakwt.report.study import Study

Numbers = dict[str, Any]
Document = dict[str, Any]
Cell = str | float | int | None
LONG_TEXT = 24  # characters; longer cells are wrapped
NARROW = 8  # columns of a table that fits beside a figure
TENSORS = "tensors"  # the key of a section's heat maps, which are not in report.json


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
        beside, below = self._placed_tables()
        text = prose(self.text)
        if len(shown) == 1:  # text and figure side by side where the screen is wide
            body = element("div", text, *beside, *shown, class_="flow")
        else:
            body = join(text, element("div", *shown, *beside, class_="figures") if shown else "")
        return element(
            "section",
            element("h2", self.title),
            element("p", f"In the paper: {self.counterpart}.", class_="counterpart"),
            body,
            *below,
            id=name,
        )

    def _placed_tables(self) -> tuple[list[Html], list[Html]]:
        """Return the tables that fill the columns beside the figures, and those below them."""
        narrow = [table for table in self.tables if len(table.columns) <= NARROW]
        if len(self.figures) > 1:  # two in a row: one table fills the place beside the last
            narrow = narrow[: len(self.figures) % 2]
        beside = narrow if self.figures else []
        below = [table for table in self.tables if table not in beside]
        return [_table(table) for table in beside], [_table(table) for table in below]


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


def render(document: Document, contents: dict[str, Content], pictures: dict[str, Html]) -> str:
    """Return the page. `pictures` are the figures' SVGs by name."""
    facts = document["facts"]
    name = facts["model"]["name"]
    links = [element("a", part.title, href=f"#{key}") for key, part in contents.items()]
    sections = [part.html(key, pictures) for key, part in contents.items()]
    return html.document(
        "page.html",
        title=f"{name} · deltakwt report",
        heading=name,
        cards=join(*_cards(document)),
        facts=join(*_facts(facts)),
        contents=join(*links),
        sections=join(*sections, between="\n"),
        licence=_licence(document),
    )


def definitions(rows: tuple[tuple[str, str], ...]) -> list[Html]:
    """Return the inside of a <dl>."""
    return [join(element("dt", name), element("dd", value)) for name, value in rows]


def _cards(document: Document) -> list[Html]:
    """Return the numbers to remember."""
    own, changed = document["accuracy"], document["changes"]
    here = _own_point(document)
    cards = [
        (f"{own['dense']['accuracy']:.2f}%", "accuracy, dense"),
        (f"{here['accuracy']:.2f}%", f"accuracy with deltas ({here['name']})"),
        (f"{here['model_percent']:.1f}%", "of all MACs, the paper's count"),
        (f"{here['executed_model_percent']:.1f}%", "of all MACs, executed"),
        (f"{changed['changed']:,}", f"of {changed['clips']:,} decisions changed"),
    ]
    if "timing" in document:
        words = document["timing"]["kinds"]["words"]
        cards.append((f"{words['speed_up']:.2f}×", "as fast, measured on words"))
    return [
        element("div", element("b", big), element("span", small), class_="number-card")
        for big, small in cards
    ]


def _own_point(document: Document) -> Document:
    """Return the point of the setting that the report looks at closely."""
    setting, points = document["facts"]["setting"], document["accuracy"]["points"]
    named = [p for p in points if p["kind"] == "profile" and p["name"] == setting["name"]]
    same = [p for p in points if p["kind"] != "mhsa" and p["thresholds"] == setting["full_text"]]
    point: Document = (named or same)[0]
    return point


def _facts(facts: Document) -> list[Html]:
    data, machine, model = facts["data"], facts["machine"], facts["model"]
    noise = f"; {data['noise']:,} clips of recorded noise apart" if data["noise"] else ""
    setting, heads = facts["setting"], "head" if model["heads"] == 1 else "heads"
    return definitions(
        (
            ("Model", f"{model['name']}: width {model['dim']}, {model['heads']} {heads}, MLP"
             f" {model['mlp']}, {model['layers']} layers"),
            ("Data", f"{data['name']}, {data['split']} split, {data['clips']:,} clips:"
             f" {data['words']:,} words and {data['digital_silence']:,} of digital silence{noise};"
             f" seed {data['seed']}"),
            ("Setting", f"{setting['name']}: thresholds {setting['text']}, front end"
             f" {setting['front_end']}"),
            ("Machine", f"{machine['processor']}, {machine['cores']} cores, {machine['kernels']}"
             f" kernels, {machine['system']}, Python {machine['python']}"),
            ("Command", f"{facts['command']} (deltakwt {facts['version']})"),
        )
    )  # fmt: skip


def _licence(document: Document) -> Html:
    if not document.get("sounds"):
        return Html()
    licence = document["paper"]["data_licence"]
    return element(
        "p",
        f"Recordings: Speech Commands by Pete Warden / Google, licensed CC BY {licence}; cut to one"
        " second and compressed.",
    )
