"""The choice of decision settings: the fewest misses with few enough false accepts.

The logits of the windows are computed once. Every candidate only decides again on them, so a search
over hundreds of settings takes seconds. Choose on one stream, judge on another.

Words differ: "right" is common in speech, "stop" is not. With `per_word`, every word gets a
threshold of its own: the one with the fewest misses + price x false accepts of that word. All words
have the same price, and the search looks for the lowest price with few enough false accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import median

import numpy as np
from numpy.typing import NDArray

from deltakwt.evaluate.negatives import NegativeStream, pooled
from deltakwt.evaluate.score import Score, score
from deltakwt.evaluate.streams import Spoken
from deltakwt.evaluate.stress import THRESHOLDS, CurvePoint, SettingResult
from deltakwt.listen.decision import Decision, smooth_stream

SMOOTH = (3, 4, 5, 6, 7, 8, 9, 10)
PATIENCE = (0, 1, 2)
REFRACTORY = (0.8, 1.0)
ON = [on for on in THRESHOLDS if on >= 0.3][::2]
OFF = 0.5  # `off` as a share of `on`
PRICES = [2.0**n / 8 for n in range(11)]  # misses that one false accept is worth
Means = NDArray[np.float32]


def choose(
    result: SettingResult,
    truth: Sequence[Spoken],
    hours: float,
    base: Decision,
    *,
    negatives: Sequence[NegativeStream] = (),
    max_false: float = 1.0,
    per_word: bool = False,
) -> tuple[Decision, CurvePoint]:
    """Return the best smoothing, patience, refractory time and threshold, and their scores.

    False accepts are those per hour on the negatives, or on the stream if there are none. Among
    settings that are few enough, the one with the fewest misses, confusions and repeats wins, then
    the one that decides sooner.
    """
    runs = [result.stream, *result.negatives]
    found: list[tuple[tuple[float, ...], Decision, CurvePoint]] = []
    for smooth in SMOOTH:
        means = [smooth_stream(one.logits, smooth) for one in runs]

        def point(at: Decision, means: list[Means] = means) -> CurvePoint:
            events = [r.events_at(at, mean) for r, mean in zip(runs, means, strict=True)]
            own = score(events[0], truth, hours)
            counted = [n.false_accepts(e) for n, e in zip(negatives, events[1:], strict=True)]
            return CurvePoint(at.on, own, pooled(counted) if counted else None)

        for patience, refractory in product(PATIENCE, REFRACTORY):
            shape = replace(base, smooth=smooth, patience=patience, refractory=refractory)
            curve = [point(with_threshold(shape, on)) for on in ON]
            tried = [(with_threshold(shape, one.on), one) for one in curve]
            if per_word:
                candidates = {_thresholds_at(curve, price): None for price in PRICES}
                priced = [with_thresholds(shape, words) for words in candidates]
                tried += [(decision, point(decision)) for decision in priced]
            found += [(_rank(one, max_false, shape), decision, one) for decision, one in tried]
    _, decision, chosen = min(found, key=lambda one: one[0])
    return decision, chosen


def _thresholds_at(curve: Sequence[CurvePoint], price: float) -> tuple[tuple[str, float], ...]:
    """Return each word's threshold with the least misses + price x false accepts of that word.

    An event for another keyword (a confusion) counts like a false accept.
    """

    def cost(word: str, point: CurvePoint) -> float:
        own = point.score
        false = own.false if point.negatives is None else point.negatives.words
        wrong = sum(n for pair, n in own.confusions.items() if pair.endswith(f"> {word}"))
        return own.spoken[word] - own.hits[word] + price * (false[word] + wrong)

    words = sorted(curve[0].score.spoken)
    return tuple((word, min(curve, key=lambda one: cost(word, one)).on) for word in words)


def _rank(point: CurvePoint, max_false: float, decision: Decision) -> tuple[float, ...]:
    """Return the order of preference: smaller is better."""
    return (
        max(0.0, point.false_per_hour - max_false),
        round(point.score.miss_percent + _wrong_percent(point.score), 1),
        decision.smooth / 2 + decision.patience,
    )


def _wrong_percent(result: Score) -> float:
    """Return confusions and repeats, in percent of the spoken words."""
    wrong = result.confusions.total() + result.repeats.total()
    return 100 * wrong / max(1, result.spoken.total())


def with_thresholds(decision: Decision, words: Sequence[tuple[str, float]]) -> Decision:
    """Return the settings with a threshold for each word; the median holds for all others."""
    return replace(with_threshold(decision, median(on for _, on in words)), words=dict(words))


def with_threshold(decision: Decision, on: float) -> Decision:
    """Return the settings with one threshold for all words, and `off` in proportion to it."""
    return replace(decision, on=on, off=round(OFF * on, 4), words={})
