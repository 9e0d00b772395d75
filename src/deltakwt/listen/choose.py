"""Decision settings chosen on a stream: the fewest misses at a bearable number of false accepts.

The windows' logits are computed once; every setting is then decided again on them, so a search
over hundreds of settings takes seconds. Choose on one stream, judge on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from deltakwt.listen.decision import Decision
from deltakwt.listen.score import GRID, Score, best_point, decide, score
from deltakwt.listen.streams import Spoken

SMOOTH = (2, 3, 4, 5)
PATIENCE = (0, 1, 2)
REFRACTORY = (0.8, 1.0)
THRESHOLDS = [on for on in GRID if on >= 0.5][::2]
OFF = 0.5  # of `on`


def choose(
    logits: NDArray[np.float32],
    labels: Sequence[str],
    truth: Sequence[Spoken],
    hours: float,
    base: Decision,
    late: int,
    most_false: float = 1.0,
) -> tuple[Decision, Score]:
    """Settings of smoothing, patience, refractory time and threshold, and how they did.

    Among settings that miss equally few words the one that waits less wins.
    """
    found: list[tuple[tuple[float, float, float], Decision, Score]] = []
    for smooth, patience, refractory in product(SMOOTH, PATIENCE, REFRACTORY):
        shape = replace(base, smooth=smooth, patience=patience, refractory=refractory)
        settings = [with_threshold(shape, on) for on in THRESHOLDS]
        curve = [(s.on, score(decide(logits, labels, s, late), truth, hours)) for s in settings]
        on, result = best_point(curve, most_false)
        over = max(0.0, result.false_per_hour - most_false)
        rank = (over, round(result.miss_percent, 1), smooth / 2 + patience)
        found.append((rank, with_threshold(shape, on), result))
    _, decision, result = min(found, key=lambda one: one[0])
    return decision, result


def with_threshold(decision: Decision, on: float) -> Decision:
    """One threshold for all words, and hysteresis in proportion to it."""
    return replace(decision, on=on, off=round(OFF * on, 4), words={})
