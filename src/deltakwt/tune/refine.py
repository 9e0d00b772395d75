"""Stage 2: one threshold a site and layer.

At the best setting of a given cost, the loss for one more MAC saved is the same wherever it is
saved (the Lagrangian condition). So from a setting with one threshold a site, thresholds that are
cheap to raise are raised and dear ones are lowered, while the cost is walked down: each step is a
point of the front.

What a threshold loses and saves is found by a screening experiment: all thresholds are nudged up
or down at once, by the signs of a Hadamard matrix, so that every run tells about every threshold.
One at a time would need as many runs and drown in the chaos of threshold decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.space import Point

Table = NDArray[np.float64]  # (layers, 8)

NUDGE = 1.25  # thresholds are multiplied or divided by this to see what happens
STRIDE = log(1.4)  # no threshold moves further in one step
GAIN = 0.5  # how much of the way to equal rates is gone in one step
SHRINK = 0.93  # of the cost, a step
EVEN_STEPS = 2  # that only make the rates equal, before the cost is walked down
MAX_STEPS = 40

Report = Callable[[float, float], None]


@dataclass(frozen=True)
class Slopes:
    """What raising each threshold by NUDGE does, all others being where they are on average."""

    loss: Table  # points of expected error
    saving: Table  # percent of the model's MACs
    noise: float  # of an entry of `loss`
    cost: float  # percent of the model's MACs

    def after(self, before: Slopes | None) -> Slopes:
        """Averaged with the step before, which looked at other clips."""
        if before is None:
            return self
        loss, saving = (self.loss + before.loss) / 2, (self.saving + before.saving) / 2
        return Slopes(loss, saving, (self.noise + before.noise) / 2 / 2**0.5, self.cost)


def hadamard(order: int) -> NDArray[np.int64]:
    """(order, order) of +1 and -1 with orthogonal columns; order is a power of two."""
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < order:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def active(judge: Judge, point: Point) -> NDArray[np.bool_]:
    """(layers, 8) thresholds that do anything: the last layer's class token is always exact."""
    table = point.table(judge.config.layers) > 0
    table[-1, [1, 3, 4, 5, 6, 7]] = False  # all but x and k have one row there
    return table


def slopes(
    judge: Judge, point: Point, count: int, turn: int = 0, report: Report = lambda d, t: None
) -> Slopes:
    """Main effects of all thresholds on `count` clips."""
    table = point.table(judge.config.layers)
    places = np.nonzero(active(judge, point))
    number = len(places[0])
    order = 1 << number.bit_length()  # at least one more than there are thresholds
    signs = hadamard(order)
    runs: list[Measured] = []
    for row in signs:
        nudged = table.copy()
        nudged[places] *= NUDGE ** row[1 : number + 1]
        runs.append(judge.measure(point.with_table(nudged), count, turn))
        report(len(runs), order)
    losses = signs.T @ [measured.strain for measured in runs] / order
    costs = signs.T @ [measured.macs for measured in runs] / order
    loss, saving = np.zeros_like(table), np.zeros_like(table)
    loss[places], saving[places] = losses[1 : number + 1], -costs[1 : number + 1]
    unused = losses[number + 1 :]  # columns that no threshold has: what is left there is noise
    noise = float(np.sqrt((unused**2).mean())) if len(unused) > 7 else 0.0
    return Slopes(loss, saving, noise, float(np.mean([measured.macs for measured in runs])))


def moved(point: Point, found: Slopes, target: float) -> Point:
    """Raise the cheap thresholds and lower the dear ones, so that the cost becomes `target`."""
    table = point.table(len(found.loss))
    alive = found.saving > 0
    least = max(found.noise, 1e-4)  # a loss below the noise is not known to be smaller than it
    logs = np.zeros_like(table)
    logs[alive] = np.log(np.maximum(found.loss[alive], least) / found.saving[alive])

    def steps(level: float) -> Table:
        return np.where(alive, np.clip(GAIN * (level - logs), -STRIDE, STRIDE), 0.0)

    low, high = float(logs.min()) - 9.0, float(logs.max()) + 9.0
    for _ in range(50):  # find the common rate at which the predicted cost meets the target
        level = (low + high) / 2
        predicted = found.cost - (found.saving * steps(level)).sum() / log(NUDGE)
        low, high = (level, high) if predicted > target else (low, level)
    return point.with_table(np.where(table > 0, table * np.exp(steps(level)), table))


def walk(
    judge: Judge, point: Point, count: int, taken: int = 0, report: Report = lambda d, t: None
) -> Iterator[tuple[Point, Slopes]]:
    """Points of lower and lower cost, each with the slopes that led to it.

    `taken` steps were made before, for a walk that is taken up again.
    """
    found: Slopes | None = None
    for step in range(taken, MAX_STEPS):
        found = slopes(judge, point, count, step, report).after(found)
        factor = 1.0 if step < EVEN_STEPS else SHRINK
        point = moved(point, found, factor * found.cost)
        yield point, found
