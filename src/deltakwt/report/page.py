"""The page of a report: one HTML file with everything inside, made from the document alone."""

from __future__ import annotations

from typing import Any

from deltakwt.report import html
from deltakwt.report.html import Html, element, join
from deltakwt.report.section import Content

Document = dict[str, Any]


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
    words = document["timing"]["kinds"]["words"]
    here = _own_point(document)
    cards = (
        (f"{own['dense']['accuracy']:.2f}%", "accuracy, dense"),
        (f"{here['accuracy']:.2f}%", f"accuracy with deltas ({here['name']})"),
        (f"{here['model_percent']:.1f}%", "of all MACs, the paper's count"),
        (f"{here['executed_model_percent']:.1f}%", "of all MACs, executed"),
        (f"{words['speed_up']:.2f}×", "as fast, measured on words"),
        (f"{changed['changed']:,}", f"of {changed['clips']:,} decisions changed"),
    )
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
    setting = facts["setting"]
    return definitions(
        (
            ("Model", f"{model['name']}: width {model['dim']}, {model['heads']} heads, MLP"
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
