"""A finished report, and what must be in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 60  # clips

FIGURES = (
    "accuracy",
    "correlation-x-word",
    "correlation-x-silence",
    "correlation-softmax-word",
    "correlation-softmax-silence",
    "correlation-matrix",
    "example",
    "keywords",
    "deltas-word",
    "deltas-silence",
    "deltas-softmax-word",
    "deltas-softmax-silence",
    "layers-macs",
    "layers-bytes",
    "layers-error",
    "timing",
    "receipt",
)
TABLES = {  # at least so many rows
    "accuracy": 17,
    "claims": 12,
    "bounds": 6,
    "keywords-instance": 5,
    "keywords-mean": 5,
    "layers": 12,
    "timing": 2,
    "receipt": 11,
    "changes": 0,
}


@dataclass(frozen=True)
class Report:
    """A finished report."""

    folder: Path
    document: dict[str, Any]
    html: str
