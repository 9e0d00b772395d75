"""How sure a figure is: Wilson's interval for an accuracy, a paired bootstrap for a loss."""

from __future__ import annotations

from math import sqrt

import numpy as np

from deltakwt.tune.measure import Measured
from deltakwt.tune.mix import GROUPS

CONFIDENCE = 0.95
Z = 1.959964  # of the normal distribution, 95% two-sided
RESAMPLES = 20_000

Interval = tuple[float, float]


def wilson(share: float, count: float) -> Interval:
    """Of a share observed on `count` clips, both in percent."""
    p = share / 100
    centre = (p + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * sqrt(p * (1 - p) / count + Z * Z / (4 * count * count))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)


def accuracy_interval(measured: Measured) -> Interval:
    """Of the weighted accuracy: Wilson's with the number of clips that the weights leave over.

    Digital silence is one clip whatever it weighs, and its answer is certain.
    """
    weight = measured.weight[measured.groups != GROUPS.index("zero")]
    return wilson(measured.accuracy, float(1 / (weight**2).sum()) if weight.any() else len(weight))


def loss_interval(measured: Measured, seed: int = 0) -> Interval:
    """Of the loss in points: clips drawn again and again, each with both of its answers.

    Within a group only three things can happen to a clip (lost, kept, won), so a resample is one
    multinomial draw a group.
    """
    dice = np.random.default_rng(seed)
    change = measured.dense_right.astype(int) - measured.right  # +1 lost, -1 won
    total = np.zeros(RESAMPLES)
    for group in np.unique(measured.groups):
        mine = measured.groups == group
        count = int(mine.sum())
        shares = [float((change[mine] == value).mean()) for value in (1, -1)]
        drawn = dice.multinomial(count, [*shares, max(0.0, 1 - sum(shares))], RESAMPLES)
        weight = measured.weight[mine].sum()
        total += weight * (drawn[:, 0] - drawn[:, 1]) / count
    low, high = np.quantile(100 * total, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
