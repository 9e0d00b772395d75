"""Every number that can be read on the page is in report.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from report.made import Report

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Words(HTMLParser):
    """The text of a page without scripts, styles and drawings."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        del attrs
        if tag in ("script", "style", "svg"):
            self.hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.hidden and self.hidden[-1] == tag:
            self.hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.text.append(data)


def leaves(value: Any) -> Iterator[Any]:
    """Keys and values, but no matrices: among the many values of a heat map is any number."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            if not isinstance(inner, list):
                yield from leaves(inner)
    else:
        yield value


def strange_numbers(html: str, document: dict[str, Any]) -> list[str]:
    """Numbers of the page that the document does not have, rounded as the page rounds."""
    words = Words()
    words.feed(html)
    values = list(leaves(document))
    written = {token for v in values if isinstance(v, str) for token in NUMBER.findall(v)}
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    known: dict[int, set[str]] = {}

    def is_known(token: str) -> bool:
        plain = token.replace(",", "")
        places = len(plain.partition(".")[2])
        if places not in known:
            known[places] = {f"{abs(v):.{places}f}" for v in numbers}
        return token in written or plain in written or plain in known[places]

    tokens = NUMBER.findall(" ".join(words.text))
    return sorted({token for token in tokens if not is_known(token.rstrip(","))})


def test_every_number_of_the_page_is_in_the_json(report: Report) -> None:
    assert strange_numbers(report.html, report.document) == []


def test_a_made_up_number_is_found(report: Report) -> None:
    page = report.html.replace("</h1>", "</h1><p>1,234.567% better</p>")
    assert strange_numbers(page, report.document) == ["1,234.567"]
