"""Stage 2: one threshold per site and layer.

At the best setting of a given cost, the loss per saved MAC (or microsecond) is the same wherever it
is saved (the Lagrangian condition). So, from a setting with one threshold per site, thresholds that
save much for little loss are raised and the others are lowered, while the cost goes down step by
step.
Each step is a point of the front.

What a threshold loses and saves is found by a screening experiment: all thresholds are moved up or
down at once, by the signs of a Hadamard matrix, so that every run contributes to every estimate.
Moving one threshold at a time would need as many runs and give noisier estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.setting import SITES, Setting, Thresholds
from deltakwt.evaluate.pool import Progress
from deltakwt.tune.measure import Evaluator, Measurement

if TYPE_CHECKING:
    import optuna

Table = NDArray[np.float64]  # (layers, 8) thresholds, -1 where a site is dense

NUDGE = 1.4  # the factor by which the screening experiment moves thresholds
STRIDE = log(1.5)  # a threshold moves by no more than this (in its logarithm) in one step
SHRINK = 0.78  # factor of the cost per step
EVEN_STEPS = 4  # first steps, which keep the cost and only balance loss against saving
MAX_STEPS = 40
SHAPES = 3  # level, tilt and bend of a site over the layers
COST_CORRECTIONS = 2  # per step
CAREFUL_FACTORS = (0.2, 0.3, 0.42, 0.55, 0.65, 0.73, 0.81, 0.9)
BETWEEN_STEPS = 5  # settings interpolated between two steps


def threshold_table(setting: Setting, layers: int) -> Table:
    """Return the thresholds (layers, 8) of the sites that save MACs; -1 where a site is dense."""
    thresholds = setting.thresholds or Thresholds()
    return thresholds.array(layers)[:, : len(SITES)].astype(np.float64)


def with_table(setting: Setting, table: Table) -> Setting:
    """Return the setting with one threshold per site and layer, rounded to four digits."""
    columns: dict[str, Any] = {
        site: tuple(float(f"{value:.4g}") for value in table[:, column])
        for column, site in enumerate(SITES)
        if (table[:, column] >= 0).all()
    }
    return Setting(Thresholds(**columns), setting.front_end)


@dataclass(frozen=True)
class Slopes:
    """The effect of raising each threshold by the factor NUDGE, averaged over the others."""

    loss: Table  # mean distance of the logits from the dense ones
    saving: Table  # of the cost
    noise: float  # standard error of an entry of `loss`
    cost: float  # see `cost_to_save`

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
        """Return the average with the step before, which was measured on other clips."""
        if before is None:
            return self
        loss, saving = (self.loss + before.loss) / 2, (self.saving + before.saving) / 2
        return Slopes(loss, saving, (self.noise + before.noise) / 2 / 2**0.5, self.cost)


def cost_to_save(evaluator: Evaluator, measurement: Measurement) -> float:
    """Return percent of the MACs, or milliseconds without those that every setting needs."""
    if evaluator.cost is None or measurement.ms is None:
        return measurement.macs
    return measurement.ms - evaluator.cost.constant


def hadamard(order: int) -> NDArray[np.int64]:
    """Return a matrix of +1 and -1 with orthogonal columns; the order is a power of two."""
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < order:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def active(evaluator: Evaluator, setting: Setting) -> NDArray[np.bool_]:
    """Return which thresholds (layers, 8) have an effect: in the last layer only x and k.

    The last layer computes one row for the class token, which is always exact.
    """
    table = threshold_table(setting, evaluator.config.layers) > 0
    table[-1, [i for i, site in enumerate(SITES) if site not in ("x", "k")]] = False
    return table


def shapes_over_depth(evaluator: Evaluator, setting: Setting, shapes: int) -> list[Table]:
    """Return the directions (layers, 8) that are varied: level, tilt and bend of a site over depth.

    Sensitivity changes slowly from layer to layer. Three smooth shapes per site need a quarter of
    the runs that one direction per threshold would need, and give clearer estimates.
    """
    alive = active(evaluator, setting)
    directions = []
    for site in range(alive.shape[1]):
        layers = np.flatnonzero(alive[:, site])
        powers = np.vander(layers / max(1, evaluator.config.layers - 1), shapes, increasing=True)
        orthogonal = np.linalg.qr(powers)[0].T * np.sqrt(len(layers)) if len(layers) else []
        for shape in orthogonal:
            direction = np.zeros(alive.shape)
            direction[layers, site] = shape
            directions.append(direction)
    return directions


def slopes(
    evaluator: Evaluator,
    setting: Setting,
    count: int,
    turn: int = 0,
    progress: Progress = lambda done, total: None,
    shapes: int = SHAPES,
) -> Slopes:
    """Measure the main effects on `count` clips, per direction, and expand them per threshold."""
    table = threshold_table(setting, evaluator.config.layers)
    directions = np.array(shapes_over_depth(evaluator, setting, shapes))  # (number, layers, 8)
    number = len(directions)
    order = 1 << number.bit_length()  # at least one more than there are directions
    signs = hadamard(order)
    runs: list[Measurement] = []
    for row in signs:
        push = np.tensordot(row[1 : number + 1], directions, 1) / shapes**0.5  # (layers, 8)
        nudged = np.where(table >= 0, table * NUDGE**push, table)
        runs.append(evaluator.measure(with_table(setting, nudged), count, turn, distance=True))
        progress(len(runs), order)
    losses = signs.T @ [run.logit_distance for run in runs] / order
    costs = signs.T @ [cost_to_save(evaluator, run) for run in runs] / order
    # A direction has as many entries as layers, of mean square one: the projection's norm.
    each = directions * (shapes**0.5 / (directions**2).sum(axis=(1, 2)))[:, None, None]
    loss = np.tensordot(losses[1 : number + 1], each, 1)
    saving = -np.tensordot(costs[1 : number + 1], each, 1)
    unused = losses[number + 1 :]  # columns without a direction contain only noise
    noise = float(np.sqrt((unused**2).mean() * shapes / len(table))) if len(unused) else 0.0
    cost = cost_to_save(evaluator, evaluator.measure(setting, count, turn))
    return Slopes(loss, saving, noise, cost)


def moved(setting: Setting, found: Slopes, target: float) -> Setting:
    """Raise thresholds that save much for little loss and lower others, to the cost `target`.

    At a given price per MAC, raising a threshold gains `price * saving` and costs `loss`. The step
    is their difference over their sum: at most STRIDE, and small where both are below the noise.
    """
    table = threshold_table(setting, len(found.loss))
    alive = (table > 0) & (found.saving != 0)

    def steps(price: float) -> Table:
        gain, loss = price * np.maximum(found.saving, 0), found.loss
        size = gain + np.abs(loss) + found.noise
        return np.where(alive, STRIDE * (gain - loss) / np.maximum(size, 1e-12), 0.0)

    low, high = 1e-9, 1e9
    for _ in range(80):  # bisect for the price at which the predicted cost is the target
        price = (low * high) ** 0.5
        predicted = found.cost - (found.saving * steps(price)).sum() / log(NUDGE)
        low, high = (price, high) if predicted > target else (low, price)
    return with_table(setting, np.where(alive, table * np.exp(steps(price)), table))


def with_cost(
    evaluator: Evaluator, setting: Setting, found: Slopes, target: float, count: int, turn: int
) -> Setting:
    """Scale all thresholds by a common factor until the measured cost is close to the target."""
    table = threshold_table(setting, evaluator.config.layers)
    steepness = found.saving.sum() / log(NUDGE)
    for _ in range(COST_CORRECTIONS):
        over = cost_to_save(evaluator, evaluator.measure(setting, count, turn)) - target
        table = np.where(
            found.saving > 0, table * np.exp(np.clip(over / steepness, -0.3, 0.3)), table
        )
        setting = with_table(setting, table)
    return setting


def adjusted(evaluator: Evaluator, setting: Setting, count: int, steps: int) -> Setting:
    """Return a setting of the same cost and lower loss, with one threshold per site for all layers.

    This is the paper's "threshold adjusting": the same step as in a refinement, with the level of
    a site as its only shape.
    """
    before: Slopes | None = None
    for step in range(steps):
        before = slopes(evaluator, setting, count, step, shapes=1).after(before)
        target = before.cost
        setting = moved(setting, before, target)
        setting = with_cost(evaluator, setting, before, target, count, step)
    first = threshold_table(setting, evaluator.config.layers)[0]
    values = {site: float(v) for site, v in zip(SITES, first, strict=True) if v >= 0}
    return Setting(Thresholds(**values), setting.front_end)


def walk(
    evaluator: Evaluator,
    setting: Setting,
    count: int,
    taken: int = 0,
    found: Slopes | None = None,
    progress: Progress = lambda done, total: None,
) -> Iterator[tuple[Setting, Slopes]]:
    """Yield settings of lower and lower cost, each with the slopes that led to it.

    A walk that is resumed has `taken` steps and the slopes `found`.
    """
    for step in range(taken, MAX_STEPS):
        found = slopes(evaluator, setting, count, step, progress).after(found)
        target = (1.0 if step < EVEN_STEPS else SHRINK) * found.cost
        setting = moved(setting, found, target)
        setting = with_cost(evaluator, setting, found, target, count, step)
        yield setting, found


@dataclass
class Walk:
    """The steps from one start, as the study stores them."""

    start: Setting
    path: list[Setting] = field(default_factory=list)
    slopes: Slopes | None = None

    @property
    def key(self) -> str:
        """The attribute of the study that stores this walk."""
        return f"refined {self.start.front_end}"

    def settings(self, layers: int) -> list[Setting]:
        """Return the candidates, most expensive first.

        They begin with all thresholds of the last even step lowered by common factors, go on along
        the steps, and include settings between the steps.
        """
        even = self.path[:EVEN_STEPS][-1]
        table = threshold_table(even, layers)
        careful = [
            with_table(even, np.where(table > 0, table * factor, table))
            for factor in CAREFUL_FACTORS
        ]
        return interpolated([*careful, even, *self.path[EVEN_STEPS:]], layers)

    def load(self, study: optuna.Study) -> None:
        """Read the steps that the study has."""
        if stored := study.user_attrs.get(self.key):
            self.path = [Setting.from_json(setting) for setting in stored["path"]]
            self.slopes = Slopes.from_json(stored["slopes"])

    def store(self, study: optuna.Study) -> None:
        """Write the steps to the study."""
        assert self.slopes is not None
        path = [setting.to_json() for setting in self.path]
        study.set_user_attr(self.key, {"path": path, "slopes": self.slopes.to_json()})


def interpolated(path: list[Setting], layers: int) -> list[Setting]:
    """Return the path with BETWEEN_STEPS settings between each step and the next."""
    shares = np.arange(BETWEEN_STEPS + 1) / (BETWEEN_STEPS + 1)
    settings = []
    for one, two in pairwise(path):
        start, end = threshold_table(one, layers), threshold_table(two, layers)
        ratio = np.where(start > 0, end / np.where(start > 0, start, 1.0), 1.0)
        settings += [with_table(two, start * ratio**share) for share in shares]
    return settings + path[-1:]
