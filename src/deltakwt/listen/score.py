"""Events against the truth: misses, false accepts, delay, and how they trade over thresholds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import UNKNOWN
from deltakwt.listen.decision import Decider, Decision, posteriors
from deltakwt.listen.spotter import SURE
from deltakwt.listen.streams import Spoken

TOLERANCE = 1.0  # seconds after the end of a word in which it may still be reported
# Close where the curve bends: models trained with smoothed labels never say more than 0.91.
GRID = (*(n / 50 for n in range(5, 40)), *(n / 200 for n in range(160, 200)))


@dataclass(frozen=True)
class Heard:
    """An event as the score needs it."""

    label: str
    time: float  # when it was decided
    peak: int  # window


@dataclass
class Score:
    """One operating point."""

    hours: float
    spoken: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)  # by the word that was reported
    causes: Counter[str] = field(default_factory=Counter)  # by what was really there
    delays: list[float] = field(default_factory=list)

    @property
    def miss_percent(self) -> float:
        total = self.spoken.total()
        return 100 * (total - self.hits.total()) / total if total else 0.0

    @property
    def false_per_hour(self) -> float:
        return self.false.total() / self.hours

    def to_json(self) -> dict[str, Any]:
        return {
            "spoken": self.spoken.total(),
            "missed": self.spoken.total() - self.hits.total(),
            "miss_percent": round(self.miss_percent, 3),
            "false_accepts": self.false.total(),
            "false_accepts_per_hour": round(self.false_per_hour, 3),
            "false_accepts_by_cause": dict(sorted(self.causes.items())),
            "delay_seconds": _delay(self.delays),
            "words": {
                word: {
                    "spoken": count,
                    "miss_percent": round(100 * (count - self.hits[word]) / count, 2),
                    "false_accepts_per_hour": round(self.false[word] / self.hours, 3),
                }
                for word, count in sorted(self.spoken.items())
            },
        }


def _delay(delays: list[float]) -> dict[str, float] | None:
    if not delays:
        return None
    ordered = sorted(delays)
    return {
        "median": round(median(ordered), 3),
        "p95": round(ordered[int(0.95 * (len(ordered) - 1))], 3),
    }


def score(events: Sequence[Heard], truth: Sequence[Spoken], hours: float) -> Score:
    """Match events with words in order of time.

    An event is a hit if its word was being said, or had ended at most TOLERANCE before. One word
    is hit once: a second event for it is a false accept, and so is a wrong word.
    """
    result = Score(hours, Counter(w.label for w in truth if w.label != UNKNOWN))
    ends = [word.end for word in truth]
    taken: set[int] = set()
    for event in events:
        index = bisect_left(ends, event.time - TOLERANCE)
        near = index < len(truth) and truth[index].start <= event.time
        word = truth[index] if near else None
        if word is not None and word.label == event.label and index not in taken:
            taken.add(index)
            result.hits[event.label] += 1
            result.delays.append(event.time - word.end)
            continue
        result.false[event.label] += 1
        result.causes[_cause(event, word)] += 1
    return result


def _cause(event: Heard, word: Spoken | None) -> str:
    if word is None:
        return "noise"
    if word.label == event.label:
        return "repeated"
    return "other speech" if word.label == UNKNOWN else "another keyword"


def decide(
    logits: NDArray[np.float32], labels: Sequence[str], decision: Decision, smooth_frames: int
) -> list[Heard]:
    """The events of a whole stream from the logits of its windows."""
    hop = decision.hop_frames / 100
    late = 1.0 + smooth_frames / 100  # a window is heard when it is over
    found = Decider(decision, labels).push(logits)
    return [Heard(labels[d.label], d.window * hop + late, d.peak) for d in found]


def confirmed(
    events: Sequence[Heard], second: NDArray[np.float32], labels: Sequence[str], least: float = SURE
) -> list[Heard]:
    """Those that a second stage, given by its logits of the same windows, also names."""
    if not events:
        return []
    scores = posteriors(second[[event.peak for event in events]])
    best = scores.argmax(axis=1)
    return [
        event
        for event, row, label in zip(events, scores, best, strict=True)
        if labels[label] == event.label and row[label] >= least
    ]


def best_point(curve: Sequence[tuple[float, Score]], most_false: float) -> tuple[float, Score]:
    """The threshold with the fewest misses among those with few enough false accepts."""
    able = [point for point in curve if point[1].false_per_hour <= most_false]
    return min(able or [curve[-1]], key=lambda point: point[1].miss_percent)
