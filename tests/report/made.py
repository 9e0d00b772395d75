"""A finished report, and what must be in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 60  # clips

FIGURES = (
    "example",
    "accuracy",
    "similarity-x-word",
    "similarity-x-silence",
    "similarity-softmax-word",
    "similarity-softmax-silence",
    "similarity-layers",
    "deltas-word",
    "deltas-silence",
    "deltas-softmax-word",
    "deltas-softmax-silence",
    "keywords",
    "layers-macs",
    "layers-error",
    "storage",
    "timing",
    "breakdown",
    "width",
)
TABLES = {  # name: the least number of rows
    "accuracy": 17,
    "similarity-readings": 7,
    "keywords-instance": 5,
    "keywords-mean": 5,
    "bounds": 6,
    "counts": 7,
    "layers": 12,
    "storage": 10,
    "state": 10,
    "timing": 2,
    "breakdown": 11,
    "width": 10,
    "changes": 0,
    "claims": 18,
}


@dataclass(frozen=True)
class Report:
    """A finished report."""

    folder: Path
    document: dict[str, Any]
    html: str
