"""Streaming evaluation: a model's profiles side by side on one long stream with known words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.listen.decision import Decision
from deltakwt.listen.hearing import Hearing
from deltakwt.listen.meter import Reading
from deltakwt.listen.score import GRID, Heard, Score, best_point, confirmed, decide, score
from deltakwt.listen.spotter import decision_of
from deltakwt.listen.streams import Stream

DENSE = "dense"
Progress = Callable[[float, float], None]  # seconds of sound done, of all


@dataclass(frozen=True)
class Setting:
    """A way to run the model."""

    name: str
    thresholds: Thresholds | None
    front_end: FrontEndSetting


@dataclass(frozen=True)
class Course:
    """One setting on the whole stream."""

    setting: Setting
    logits: NDArray[np.float32]  # (windows, labels)
    meter: Reading
    curve: list[tuple[float, Score]]  # over thresholds
    own: Score  # at the decision settings as they are
    verified: Score | None  # the same, confirmed by the dense run of the same windows

    def to_json(self) -> dict[str, Any]:
        one, at_one = best_point(self.curve, 1.0)
        return {
            "profile": self.setting.name,
            "thresholds": None if self.setting.thresholds is None else str(self.setting.thresholds),
            "steady": self.setting.front_end.to_json(),
            "compute": self.meter.to_json(),
            "decided": self.own.to_json(),
            "verified_by_dense": None if self.verified is None else self.verified.to_json(),
            "at_one_false_accept_per_hour": {
                "on": one,
                "reached": at_one.false_per_hour <= 1,
                "miss_percent": round(at_one.miss_percent, 3),
                "false_accepts_per_hour": round(at_one.false_per_hour, 3),
            },
            "curve": [
                {
                    "on": on,
                    "miss_percent": round(point.miss_percent, 3),
                    "false_accepts_per_hour": round(point.false_per_hour, 3),
                }
                for on, point in self.curve
            ],
        }


def settings_of(model: Model, names: Sequence[str] | None) -> list[Setting]:
    """Dense and the named profiles (all of the model's, if none are named)."""
    wanted = names or [DENSE, *model.profiles.profiles]
    return [
        Setting(DENSE, None, PLAIN)
        if name == DENSE
        else Setting(name, model.profiles[name].thresholds, model.profiles[name].front_end)
        for name in wanted
    ]


def stress(
    model: Model,
    stream: Stream,
    settings: Sequence[Setting],
    decision: Decision | None = None,
    progress: Progress = lambda _done, _total: None,
) -> list[Course]:
    """Every setting hears the same blocks, one after the other, so that their times compare."""
    decision = decision or decision_of(model)
    hearings = [Hearing(model, s.thresholds, s.front_end, decision) for s in settings]
    heard: list[list[NDArray[np.float32]]] = [[] for _ in settings]
    done = 0
    for block in stream.blocks():
        for hearing, rows in zip(hearings, heard, strict=True):
            rows.append(hearing.push(block))
        done += len(block)
        progress(done / SAMPLE_RATE, stream.scenario.samples / SAMPLE_RATE)
    logits = [np.concatenate(rows) for rows in heard]
    dense = next((rows for s, rows in zip(settings, logits, strict=True) if s.name == DENSE), None)
    return [
        _course(model, stream, setting, rows, hearing.meter.ever, decision, dense)
        for setting, rows, hearing in zip(settings, logits, hearings, strict=True)
    ]


def _course(
    model: Model,
    stream: Stream,
    setting: Setting,
    logits: NDArray[np.float32],
    meter: Reading,
    decision: Decision,
    dense: NDArray[np.float32] | None,
) -> Course:
    hours, late = stream.scenario.hours, int(setting.front_end.smooth)

    def events(at: Decision) -> list[Heard]:
        return decide(logits, model.labels, at, late)

    curve = [(on, score(events(decision.at(on)), stream.truth, hours)) for on in GRID]
    found = events(decision)
    verified = None
    if dense is not None and setting.name != DENSE:
        # Smoothing makes a profile's windows come a frame later, so it may have one fewer.
        second = confirmed(found, dense[: len(logits)], model.labels)
        verified = score(second, stream.truth, hours)
    own = score(found, stream.truth, hours)
    return Course(setting, logits, meter, curve, own, verified)


def report(
    model: Model, stream: Stream, decision: Decision, courses: list[Course]
) -> dict[str, Any]:
    """Everything, for `--json`."""
    return {
        "model": model.name,
        "scenario": asdict(stream.scenario),
        "stream": stream.digest,
        "words": len(stream.truth),
        "decision": decision.to_json(),
        "profiles": [course.to_json() for course in courses],
    }
