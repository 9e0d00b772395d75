"""The page: one HTML file with everything inside, made from the report's document alone."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from deltakwt.report.section import Page
from deltakwt.report.setting import stamp
from deltakwt.report.style import Figure
from deltakwt.report.tables import Table

Document = dict[str, Any]


def render(document: Document, pages: dict[str, Page], pictures: dict[str, str]) -> str:
    """`pictures`: name of each figure -> its SVG."""
    facts = document["setting"]
    sections = [_section(name, page, pictures, facts) for name, page in pages.items()]
    contents = "".join(
        f'<a href="#{name}">{escape(page.title)}</a>' for name, page in pages.items()
    )
    return fill(
        "page.html",
        title=f"{facts['model']['name']} · deltakwt report",
        style=asset("page.css"),
        script=asset("page.js"),
        heading=escape(facts["model"]["name"]),
        cards=_cards(document),
        facts=_facts(facts),
        contents=contents,
        sections="\n".join(sections),
        licence=_licence(document),
    )


def fill(name: str, **values: str) -> str:
    return Template(asset(name)).substitute(values)


def asset(name: str) -> str:
    return (files("deltakwt.report") / name).read_text(encoding="utf-8")


def _section(name: str, page: Page, pictures: dict[str, str], facts: Document) -> str:
    figures = "\n".join(_figure(figure, pictures[figure.name], facts) for figure in page.figures)
    tables = "\n".join(_table(table, facts) for table in page.tables)
    grid = f'<div class="figures">{figures}</div>' if figures else ""
    return (
        f'<section id="{name}"><h2>{escape(page.title)}</h2>'
        f'<p class="counterpart">In the paper: {escape(page.counterpart)}.</p>'
        f"{page.text}{grid}{tables}</section>"
    )


def _figure(figure: Figure, picture: str, facts: Document) -> str:
    return (
        f'<figure id="figure-{figure.name}" class="card">{picture}'
        f"<figcaption>{escape(figure.caption)}{_stamp(facts, figure.thresholds)}</figcaption>"
        "</figure>"
    )


def _table(table: Table, facts: Document) -> str:
    note = _stamp(facts, table.thresholds) if table.thresholds else ""
    return (
        f'<figure class="card table">{table.html()}'
        f"<figcaption>{escape(table.caption)}{note}</figcaption></figure>"
    )


def _stamp(facts: Document, thresholds: str) -> str:
    line = escape(stamp(facts, thresholds))
    return f'<details><summary>how</summary><p class="stamp">{line}</p></details>'


def _cards(document: Document) -> str:
    """The four numbers to take home."""
    own = document["sweep"]
    changed = document["changes"]
    words = document["timing"]["kinds"]["words"]
    name = document["setting"]["thresholds"]["name"]
    here = next(
        (p for p in own["points"] if p["name"] == name),
        next(p for p in own["points"] if p["kind"] == "whole" and p["name"].endswith("× 1")),
    )
    cards = [
        (f"{own['dense']['accuracy']:.2f}%", "accuracy, dense"),
        (f"{here['accuracy']:.2f}%", f"accuracy by deltas ({name})"),
        (
            f"{here['model_percent']:.1f}%",
            f"of all MACs ({here['mhsa_percent']:.1f}% of attention)",
        ),
        (f"{words['speed_up']:.2f}×", "as fast, measured on words"),
        (f"{changed['changed']:,}", f"of {changed['clips']:,} decisions changed"),
    ]
    return "".join(
        f'<div class="number-card"><b>{escape(big)}</b><span>{escape(small)}</span></div>'
        for big, small in cards
    )


def _facts(facts: Document) -> str:
    data, machine, model = facts["data"], facts["machine"], facts["model"]
    noise = f", and {data['noise']:,} clips of noise apart" if data["noise"] else ""
    front_end = facts["thresholds"]["steady"]
    front = ""
    if steady["smooth"] or steady["floor"]:
        smooth = "smoothed" if steady["smooth"] else "not smoothed"
        front = f"; front_end front end: {smooth}, floor {steady['floor']:g}"
    rows = (
        ("Model", f"{model['name']}: width {model['dim']}, {model['heads']} heads, MLP"
         f" {model['mlp']}, {model['layers']} layers"),
        ("Data", f"{data['name']}, {data['split']} split, {data['clips']:,} clips:"
         f" {data['words']:,} words and {data['digital_silence']:,} of digital silence{noise};"
         f" seed {data['seed']}"),
        ("Thresholds", f"{facts['thresholds']['name']}: {facts['thresholds']['text']}{front}"),
        ("Machine", f"{machine['processor']}, {machine['cores']} cores, {machine['kernels']}"
         f" kernels, {machine['system']}, Python {machine['python']}"),
        ("Command", facts["command"]),
        ("Version", f"deltakwt {facts['version']}"),
    )  # fmt: skip
    return "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in rows)


def _licence(document: Document) -> str:
    if not document.get("sounds"):
        return ""
    return (
        "<p>Recordings: Speech Commands by Pete Warden / Google, licensed CC BY"
        f" {document['paper']['data_licence']}; cut to one second and compressed.</p>"
    )
