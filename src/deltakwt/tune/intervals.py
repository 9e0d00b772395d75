"""Statistics: confidence intervals of an accuracy and of a paired loss, and McNemar's test.

A loss is paired: the same clip is classified by the dense model and with thresholds, so only the
clips on which the two differ carry information.
"""

from __future__ import annotations

from math import comb, sqrt

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
Z = 1.959964  # two-sided 95% of the normal distribution
Z_ONE_SIDED = 1.644854  # one-sided 95%
RESAMPLES = 20_000

Interval = tuple[float, float]
Floats = NDArray[np.float64]


def wilson(percent: float, count: float) -> Interval:
    """Return Wilson's 95% interval, in percent, of a percentage observed on `count` clips."""
    p = percent / 100
    centre = (p + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * sqrt(p * (1 - p) / count + Z * Z / (4 * count * count))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)


def standard_error(change: Floats, weight: Floats, groups: NDArray[np.int64]) -> float:
    """Return the standard error, in points, of the weighted sum of a change per clip.

    Clips vary within their group; the weight of a group is fixed by the mix.
    """
    variance = 0.0
    for group in np.unique(groups):
        mine = groups == group
        variance += weight[mine].sum() ** 2 * change[mine].var() / mine.sum()
    return float(100 * np.sqrt(variance))


def paired_bootstrap(
    change: NDArray[np.int64], weight: Floats, groups: NDArray[np.int64], seed: int = 0
) -> Interval:
    """Return the bootstrap's 95% interval, in points, of the weighted loss.

    `change` is +1 for a clip that only the dense model classifies correctly, -1 for one that only
    the thresholds classify correctly, else 0. With three outcomes a resample of a group is one
    multinomial draw.
    """
    rng = np.random.default_rng(seed)
    total = np.zeros(RESAMPLES)
    for group in np.unique(groups):
        mine = groups == group
        count = int(mine.sum())
        shares = [float((change[mine] == value).mean()) for value in (1, -1)]
        drawn = rng.multinomial(count, [*shares, max(0.0, 1 - sum(shares))], RESAMPLES)
        total += weight[mine].sum() * (drawn[:, 0] - drawn[:, 1]) / count
    low, high = np.quantile(100 * total, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def mcnemar(lost: int, won: int) -> float:
    """Return the two-sided p-value of McNemar's exact test that losses and gains are as likely."""
    changed, fewer = lost + won, min(lost, won)
    tail = sum(comb(changed, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**changed))
