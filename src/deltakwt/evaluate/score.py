"""Events against the truth of a stream: misses, false accepts, confusions and delay.

- A *miss* is a keyword that was said and not reported.
- A *false accept* is an event on keyword-free sound: noise, or speech that is not a keyword.
- A *confusion* is an event for a keyword that was said, with the label of another keyword.
- A *repeat* is a second event for one spoken keyword.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from deltakwt.core.config import UNKNOWN
from deltakwt.evaluate.streams import Spoken
from deltakwt.listen.decision import Event

TOLERANCE = 1.0  # seconds after the end of a word in which it may still be reported


@dataclass
class Score:
    """The counts of one stream at one operating point."""

    hours: float
    spoken: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)  # false accepts by reported word
    causes: Counter[str] = field(default_factory=Counter)  # false accepts: noise, other speech
    confusions: Counter[str] = field(default_factory=Counter)  # "no > go": said, reported
    repeats: Counter[str] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)

    @property
    def miss_percent(self) -> float:
        total = self.spoken.total()
        return 100 * (total - self.hits.total()) / total if total else 0.0

    @property
    def false_per_hour(self) -> float:
        return self.false.total() / self.hours

    @property
    def confusions_per_hour(self) -> float:
        return self.confusions.total() / self.hours

    def to_json(self) -> dict[str, Any]:
        return {
            "spoken": self.spoken.total(),
            "missed": self.spoken.total() - self.hits.total(),
            "miss_percent": round(self.miss_percent, 3),
            "false_accepts": self.false.total(),
            "false_accepts_per_hour": round(self.false_per_hour, 3),
            "false_accepts_by_cause": dict(sorted(self.causes.items())),
            "confusions": self.confusions.total(),
            "confusions_per_hour": round(self.confusions_per_hour, 3),
            "confusions_by_pair": dict(self.confusions.most_common()),
            "repeats": self.repeats.total(),
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


def score(events: Sequence[Event], truth: Sequence[Spoken], hours: float) -> Score:
    """Match the events with the spoken words in order of time.

    An event is a hit if its word is being said, or ended at most TOLERANCE before.
    """
    result = Score(hours, Counter(w.label for w in truth if w.label != UNKNOWN))
    ends = [word.end for word in truth]
    taken: set[int] = set()
    for event in events:
        index = bisect_left(ends, event.time - TOLERANCE)
        is_near = index < len(truth) and truth[index].start <= event.time
        said = truth[index].label if is_near else None
        if said is None or said == UNKNOWN:
            result.false[event.label] += 1
            result.causes["noise" if said is None else "other speech"] += 1
        elif said != event.label:
            result.confusions[f"{said} > {event.label}"] += 1
        elif index in taken:
            result.repeats[said] += 1
        else:
            taken.add(index)
            result.hits[said] += 1
            result.delays.append(event.time - ends[index])
    return result
