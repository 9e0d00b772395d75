"""Stage 2: one threshold a site and layer.

At the best setting of a given cost, the loss for one more MAC saved is the same wherever it is
saved (the Lagrangian condition). So from a setting with one threshold a site, thresholds that are
cheap to raise are raised and dear ones are lowered, while the cost is walked down: each step is a
point of the front.

What a threshold loses and saves is found by a screening experiment: all are nudged up or down at
once, by the signs of a Hadamard matrix, so that every run tells about every direction. One at a
time would need as many runs and drown in the chaos of threshold decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.tune.measure import Judge, Measured
from deltakwt.tune.space import Point

Table = NDArray[np.float64]  # (layers, 8)

NUDGE = 1.4  # thresholds are multiplied or divided by this to see what happens
STRIDE = log(1.5)  # no threshold moves further in one step
SHRINK = 0.78  # of the cost, a step
EVEN_STEPS = 4  # that only make the rates equal, before the cost is walked down
MAX_STEPS = 40
SHAPES = 3  # level, tilt and bend of a site over the layers
LEVELLING = 2
RETREAT = (0.2, 0.3, 0.42, 0.55, 0.65, 0.73, 0.81, 0.9)
FILLED = 2  # points between two steps

Report = Callable[[float, float], None]


@dataclass(frozen=True)
class Slopes:
    """What raising each threshold by NUDGE does, all others being where they are on average."""

    loss: Table  # mean distance of the logits from the dense ones
    saving: Table  # percent of the model's MACs
    noise: float  # of an entry of `loss`
    cost: float  # percent of the model's MACs

    def to_json(self) -> dict[str, Any]:
        return {
            "loss": self.loss.tolist(),
            "saving": self.saving.tolist(),
            "noise": self.noise,
            "cost": self.cost,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Slopes:
        loss, saving = np.array(data["loss"]), np.array(data["saving"])
        return cls(loss, saving, data["noise"], data["cost"])

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


def shapes_over_depth(judge: Judge, point: Point) -> list[Table]:
    """The directions that are nudged, each (layers, 8): a site's level, tilt and bend over depth.

    Sensitivity changes slowly from layer to layer. Three smooth shapes a site need a quarter of
    the runs that one direction a threshold would, and each stands out of the noise.
    """
    alive = active(judge, point)
    directions = []
    for site in range(alive.shape[1]):
        layers = np.flatnonzero(alive[:, site])
        powers = np.vander(layers / max(1, judge.config.layers - 1), SHAPES, increasing=True)
        orthogonal = np.linalg.qr(powers)[0].T * np.sqrt(len(layers)) if len(layers) else []
        for shape in orthogonal:
            direction = np.zeros(alive.shape)
            direction[layers, site] = shape
            directions.append(direction)
    return directions


def slopes(
    judge: Judge, point: Point, count: int, turn: int = 0, report: Report = lambda d, t: None
) -> Slopes:
    """Main effects on `count` clips, direction by direction, then read off at every threshold."""
    table = point.table(judge.config.layers)
    directions = np.array(shapes_over_depth(judge, point))  # (number, layers, 8)
    number = len(directions)
    order = 1 << number.bit_length()  # at least one more than there are directions
    signs = hadamard(order)
    runs: list[Measured] = []
    for row in signs:
        push = np.tensordot(row[1 : number + 1], directions, 1) / SHAPES**0.5  # (layers, 8)
        nudged = np.where(table >= 0, table * NUDGE**push, table)
        runs.append(judge.measure(point.with_table(nudged), count, turn, drift=True))
        report(len(runs), order)
    losses = signs.T @ [measured.drift for measured in runs] / order
    costs = signs.T @ [measured.macs for measured in runs] / order
    # A direction has as many entries as layers, of mean square one: the projection's norm.
    each = directions * (SHAPES**0.5 / (directions**2).sum(axis=(1, 2)))[:, None, None]
    loss = np.tensordot(losses[1 : number + 1], each, 1)
    saving = -np.tensordot(costs[1 : number + 1], each, 1)
    unused = losses[number + 1 :]  # columns that no direction has: what is left there is noise
    noise = float(np.sqrt((unused**2).mean() * SHAPES / len(table))) if len(unused) else 0.0
    return Slopes(loss, saving, noise, judge.measure(point, count, turn).macs)


def moved(point: Point, found: Slopes, target: float) -> Point:
    """Raise the cheap thresholds and lower the dear ones, so that the cost becomes `target`.

    At a price for a MAC, raising a threshold gains `price * saving` and loses `loss`. The step is
    their difference over their sum: at most a STRIDE, none where both drown in the noise.
    """
    table = point.table(len(found.loss))
    alive = (table > 0) & (found.saving != 0)

    def steps(price: float) -> Table:
        gain, loss = price * np.maximum(found.saving, 0), found.loss
        size = gain + np.abs(loss) + found.noise
        return np.where(alive, STRIDE * (gain - loss) / np.maximum(size, 1e-12), 0.0)

    low, high = 1e-9, 1e9
    for _ in range(80):  # the price at which the predicted cost meets the target
        price = (low * high) ** 0.5
        predicted = found.cost - (found.saving * steps(price)).sum() / log(NUDGE)
        low, high = (price, high) if predicted > target else (low, price)
    return point.with_table(np.where(alive, table * np.exp(steps(price)), table))


def walk(
    judge: Judge,
    point: Point,
    count: int,
    taken: int = 0,
    found: Slopes | None = None,
    report: Report = lambda d, t: None,
) -> Iterator[tuple[Point, Slopes]]:
    """Points of lower and lower cost, each with the slopes that led to it.

    A walk that is taken up again has `taken` steps and `found` slopes.
    """
    for step in range(taken, MAX_STEPS):
        found = slopes(judge, point, count, step, report).after(found)
        factor = 1.0 if step < EVEN_STEPS else SHRINK
        target = factor * found.cost
        point = levelled(judge, moved(point, found, target), found, target, count, step)
        yield point, found


def filled(path: list[Point], layers: int) -> list[Point]:
    """The path with FILLED points between each step and the next, which lie close together."""
    shares = np.arange(FILLED + 1) / (FILLED + 1)
    points = []
    for one, two in pairwise(path):
        start, end = one.table(layers), two.table(layers)
        ratio = np.where(start > 0, end / np.where(start > 0, start, 1.0), 1.0)
        points += [two.with_table(start * ratio**share) for share in shares]
    return points + path[-1:]


def retreat(point: Point, layers: int) -> list[Point]:
    """Settings more careful than the even steps of a walk: all thresholds lower by one factor."""
    table = point.table(layers)
    return [point.with_table(np.where(table > 0, table * f, table)) for f in RETREAT]


def levelled(
    judge: Judge, point: Point, found: Slopes, target: float, count: int, turn: int
) -> Point:
    """All thresholds scaled alike until the cost is the target: a step is longer than a slope."""
    table = point.table(judge.config.layers)
    steepness = found.saving.sum() / log(NUDGE)
    for _ in range(LEVELLING):
        over = judge.measure(point, count, turn).macs - target
        table = np.where(
            found.saving > 0, table * np.exp(np.clip(over / steepness, -0.3, 0.3)), table
        )
        point = point.with_table(table)
    return point
