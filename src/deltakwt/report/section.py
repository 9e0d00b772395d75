"""A section of the report: numbers first (JSON), then figures, tables and words made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deltakwt.report.run import Run
from deltakwt.report.style import Figure
from deltakwt.report.tables import Table

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """What a section shows. Everything in it comes from the report's JSON."""

    title: str
    counterpart: str  # in the paper
    text: str  # HTML
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """`collect` measures; `show` gets the whole JSON document and draws from it alone."""

    name: str  # its key in the JSON
    collect: Callable[[Run], Numbers]
    show: Callable[[Numbers], Page]
