"""The sections of a report, in the order in which they are read."""

from deltakwt.report.section import Section
from deltakwt.report.sections import (
    bounds,
    changes,
    correlation,
    deltas,
    example,
    keywords,
    layers,
    sweep,
    timing,
)

SECTIONS: tuple[Section, ...] = (
    sweep.SECTION,
    correlation.SECTION,
    example.SECTION,
    bounds.SECTION,
    keywords.SECTION,
    deltas.SECTION,
    layers.SECTION,
    timing.SECTION,
    changes.SECTION,
)
