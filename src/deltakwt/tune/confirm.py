"""Stage 3: the proof. What was chosen, on clips that no search saw, with how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltakwt.tune.goals import Candidate
from deltakwt.tune.intervals import Interval, accuracy_interval, loss_interval
from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.space import Point


@dataclass(frozen=True)
class Choice:
    """One setting: what the search thought of it, and what it does on unseen clips."""

    name: str
    goal: str
    searched: Candidate
    test: Measured
    accuracy_interval: Interval
    loss_interval: Interval
    ms: float
    dense_ms: float

    @property
    def point(self) -> Point:
        return self.test.point

    def to_json(self) -> dict[str, Any]:
        found = self.test.to_json()
        del found["ms"]
        return {
            "goal": self.goal,
            "accuracy": found.pop("accuracy"),
            "accuracy_interval": list(self.accuracy_interval),
            "dense_accuracy": found.pop("dense_accuracy"),
            "loss": found.pop("loss"),
            "loss_interval": list(self.loss_interval),
            "macs_percent": found.pop("macs_percent"),
            "mhsa_percent": found.pop("mhsa_percent"),
            "ms": self.ms,
            "dense_ms": self.dense_ms,
            **found,
            "search": {
                "clips": len(self.searched.measured),
                "loss": self.searched.measured.loss,
                "macs_percent": self.searched.measured.macs,
            },
        }


def confirm(name: str, goal: str, chosen: Candidate, test: Judge, seed: int) -> Choice:
    """Measure a chosen setting on the test clips, once."""
    point = chosen.measured.point
    measured = test.measure(point)
    return Choice(
        name,
        goal,
        chosen,
        measured,
        accuracy_interval(measured),
        loss_interval(measured, seed),
        test.milliseconds(point),
        test.milliseconds(None),
    )
