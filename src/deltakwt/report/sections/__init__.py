"""The sections of a report, in the order in which they are read."""

from deltakwt.report.page import Section
from deltakwt.report.sections import (
    accuracy,
    clips,
    layers,
    similarity,
    storage,
    theory,
    timing,
    width,
)

SECTIONS: tuple[Section, ...] = (
    theory.EXAMPLE,
    accuracy.SECTION,
    similarity.SECTION,
    similarity.DELTAS,
    clips.KEYWORDS,
    theory.BOUNDS,
    layers.SECTION,
    storage.SECTION,
    timing.SECTION,
    width.SECTION,
    clips.CHANGES,
)
