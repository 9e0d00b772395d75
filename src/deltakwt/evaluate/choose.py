"""The choice of decision settings: the fewest misses with few enough false accepts.

The logits of the windows are computed once. Every candidate only decides again on them, so a search
over hundreds of settings takes seconds. Choose on one stream, judge on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from deltakwt.evaluate.negatives import NegativeStream, pooled
from deltakwt.evaluate.score import Score, score
from deltakwt.evaluate.streams import Spoken
from deltakwt.evaluate.stress import THRESHOLDS, CurvePoint, SettingResult, best_point
from deltakwt.listen.decision import Decision, smooth_stream

SMOOTH = (2, 3, 4, 5)
PATIENCE = (0, 1, 2)
REFRACTORY = (0.8, 1.0)
ON = [on for on in THRESHOLDS if on >= 0.5][::2]
OFF = 0.5  # `off` as a share of `on`


def choose(
    result: SettingResult,
    truth: Sequence[Spoken],
    hours: float,
    base: Decision,
    *,
    negatives: Sequence[NegativeStream] = (),
    max_false: float = 1.0,
) -> tuple[Decision, CurvePoint]:
    """Return the best smoothing, patience, refractory time and threshold, and their scores.

    False accepts are those per hour on the negatives, or on the stream if there are none. Among
    settings that are few enough, the one with the fewest misses wins, then the one with the fewest
    confusions and repeats, then the one that decides sooner.
    """
    recordings = [result.stream, *result.negatives]
    found: list[tuple[tuple[float, ...], Decision, CurvePoint]] = []
    for smooth in SMOOTH:
        means = [smooth_stream(one.logits, smooth) for one in recordings]
        for patience, refractory in product(PATIENCE, REFRACTORY):
            shape = replace(base, smooth=smooth, patience=patience, refractory=refractory)
            curve = []
            for on in ON:
                at = with_threshold(shape, on)
                events = [r.events_at(at, mean) for r, mean in zip(recordings, means, strict=True)]
                own = score(events[0], truth, hours)
                counted = [n.false_accepts(e) for n, e in zip(negatives, events[1:], strict=True)]
                curve.append(CurvePoint(on, own, pooled(counted) if counted else None))
            best = best_point(curve, max_false)
            found.append((_rank(best, max_false, shape), with_threshold(shape, best.on), best))
    _, decision, point = min(found, key=lambda one: one[0])
    return decision, point


def _rank(point: CurvePoint, max_false: float, decision: Decision) -> tuple[float, ...]:
    """Return the order of preference: smaller is better."""
    return (
        max(0.0, point.false_per_hour - max_false),
        round(point.score.miss_percent, 1),
        _wrong(point.score),
        decision.smooth / 2 + decision.patience,
    )


def _wrong(result: Score) -> int:
    return result.confusions.total() + result.repeats.total()


def with_threshold(decision: Decision, on: float) -> Decision:
    """Return the settings with one threshold for all words, and `off` in proportion to it."""
    return replace(decision, on=on, off=round(OFF * on, 4), words={})
