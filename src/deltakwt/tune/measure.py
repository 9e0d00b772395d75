"""What a setting costs and how much accuracy it loses on clips, with confidence intervals.

A loss is paired: the same clip is classified by the dense model and with thresholds, so only the
clips on which the two differ carry information.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.engine import Batch, Engine
from deltakwt.core.macs import MHSA_PRODUCTS, Macs, dense_macs
from deltakwt.core.setting import DENSE, PLAIN, FrontEndSetting, Setting
from deltakwt.evaluate.cost import CostModel, fit, milliseconds_per_clip
from deltakwt.evaluate.pool import GROUPS, ZERO, Mix, Pool

CONFIDENCE = 0.95
Z = 1.959964  # two-sided 95% of the normal distribution
Z_ONE_SIDED = 1.644854  # one-sided 95%
RESAMPLES = 20_000
POINTS_PER_NAT = 45.0  # points of accuracy that KWT-1 loses per nat of mean divergence
TIMED_CLIPS = 64
COST_CLIPS = 4  # of each group, for the fit of a cost model

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


@dataclass(frozen=True)
class Measurement:
    """One setting on n clips, compared clip by clip with the dense model on plain features.

    All losses are in points (percent) of accuracy, over the mix.
    """

    setting: Setting
    right: NDArray[np.bool_]  # (n,) the answer is the label (without labels: the dense answer)
    dense_right: NDArray[np.bool_]  # (n,)
    error: Floats  # (n,) 1 - probability of the target
    dense_error: Floats  # (n,)
    divergence: Floats  # (n,) KL(dense || delta) in nats
    percent: Floats  # (n,) MACs of the whole model
    mhsa_percent: Floats  # (n,) MACs of attention
    executed_mhsa: float  # percent of attention that the core multiplied, over the cost mix
    weight: Floats  # (n,) in accuracy; sums to 1
    cost_weight: Floats  # (n,) in cost; sums to 1
    groups: NDArray[np.int64]  # (n,)
    ms: float | None = None  # per clip, one core, features to logits, by the cost model
    distance: Floats | None = None  # (n,) of the logits from the dense ones on the same features

    def __len__(self) -> int:
        return len(self.right)

    @property
    def accuracy(self) -> float:
        """Accuracy in percent."""
        return float(100 * self.weight @ self.right)

    @property
    def dense_accuracy(self) -> float:
        """Accuracy of the dense model in percent."""
        return float(100 * self.weight @ self.dense_right)

    @property
    def change(self) -> NDArray[np.int64]:
        """+1 where only the dense model is right, -1 where only this setting is, else 0 (n,)."""
        return self.dense_right.astype(np.int64) - self.right

    @property
    def loss(self) -> float:
        """Accuracy of the dense model minus accuracy of this setting."""
        return self.dense_accuracy - self.accuracy

    @property
    def expected_loss(self) -> float:
        """Increase of the expected error, which is smooth where `loss` counts whole clips."""
        return float(100 * self.weight @ (self.error - self.dense_error))

    @property
    def search_loss(self) -> float:
        """The smooth loss that a search minimises.

        Half of it is the divergence, to which every clip contributes. Of all figures of one half
        of the validation clips, the divergence predicts the loss on the other half best.
        """
        return (self.expected_loss + POINTS_PER_NAT * self.kl) / 2

    @property
    def logit_distance(self) -> float:
        """Mean distance of the logits from the dense ones.

        Every clip contributes, not only the doubtful ones, so few clips are enough to compare
        single thresholds.
        """
        assert self.distance is not None, "measure with distance=True"
        return float(self.weight @ self.distance)

    @property
    def kl(self) -> float:
        """Mean divergence from the dense model in nats."""
        return float(self.weight @ self.divergence)

    @property
    def macs(self) -> float:
        """MACs of the whole model in percent of dense, over the cost mix."""
        return float(self.cost_weight @ self.percent)

    @property
    def mhsa(self) -> float:
        """MACs of attention in percent of dense by the paper's count, over the cost mix."""
        return float(self.cost_weight @ self.mhsa_percent)

    @cached_property
    def blended_loss(self) -> float:
        """The loss by which settings are chosen: the mean of `loss` and `expected_loss`.

        Together they vary less from one set of clips to another than each alone.
        """
        return (self.loss + self.expected_loss) / 2

    @cached_property
    def blended_error(self) -> float:
        """Standard error of `blended_loss`."""
        return standard_error(self._blended_change, self.weight, self.groups)

    @cached_property
    def loss_error(self) -> float:
        """Standard error of `loss`."""
        return standard_error(self.change.astype(float), self.weight, self.groups)

    @property
    def _blended_change(self) -> Floats:
        return (self.change + self.error - self.dense_error) / 2

    def group_losses(self) -> dict[str, tuple[int, float, float]]:
        """Return clips, blended loss and its standard error of every group that has a weight."""
        change = self._blended_change
        found = {}
        for number in np.unique(self.groups[self.weight > 0]):
            mine = self.groups == number
            count = int(mine.sum())
            error = 100 * float(change[mine].std()) / count**0.5
            found[GROUPS[number]] = (count, 100 * float(change[mine].mean()), error)
        return found

    def accuracy_interval(self) -> Interval:
        """Return Wilson's 95% interval of the accuracy, for the effective number of clips.

        Digital silence is one clip whatever it weighs, and its answer does not vary.
        """
        weight = self.weight[self.groups != ZERO]
        count = float(1 / (weight**2).sum()) if weight.any() else len(weight)
        return wilson(self.accuracy, count)

    def loss_interval(self, seed: int = 0) -> Interval:
        """Return the paired bootstrap's 95% interval of the loss."""
        return paired_bootstrap(self.change, self.weight, self.groups, seed)

    def mcnemar(self) -> float:
        """Return the p-value of McNemar's test over the clips that count."""
        change = self.change[self.weight > 0]
        return mcnemar(int((change > 0).sum()), int((change < 0).sum()))

    def by_group(self) -> dict[str, dict[str, float]]:
        """Return accuracy and MACs of every group."""
        found = {}
        for number in np.unique(self.groups):
            mine = self.groups == number
            found[GROUPS[number]] = {
                "clips": int(mine.sum()),
                "accuracy": float(100 * self.right[mine].mean()),
                "dense_accuracy": float(100 * self.dense_right[mine].mean()),
                "macs_percent": float(self.percent[mine].mean()),
                "mhsa_percent": float(self.mhsa_percent[mine].mean()),
            }
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "clips": len(self),
            "accuracy": self.accuracy,
            "dense_accuracy": self.dense_accuracy,
            "loss": self.loss,
            "kl": self.kl,
            "macs_percent": self.macs,
            "mhsa_percent": self.mhsa,
            "ms": self.ms,
            "groups": self.by_group(),
        }


class Evaluator:
    """Measures settings of one model on one pool, with one mix."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        pool: Pool,
        mix: Mix,
        cost_mix: Mix | None = None,
    ) -> None:
        self.config, self.engine, self.pool = config, engine, pool
        self.mix, self.cost_mix = mix, cost_mix or mix
        features = pool.features(engine, PLAIN)
        self.dense = _log_softmax(engine.batch(features).logits)  # (n, labels)
        self._dense: dict[FrontEndSetting, Floats] = {PLAIN: self.dense}
        answers = self.dense.argmax(axis=1)
        self.targets = pool.targets if pool.labelled else answers
        self.dense_right = answers == self.targets
        self.cost: CostModel | None = None  # predicts the time of a measurement; None: no time
        rows = np.arange(len(pool))
        self.dense_error = 1 - np.exp(self.dense[rows, self.targets])

    def measure(
        self, setting: Setting, count: int | None = None, turn: int = 0, *, distance: bool = False
    ) -> Measurement:
        """Measure on `count` clips, or on all of them; every turn takes other clips."""
        chosen = self.pool.window(count, turn)
        features = self.pool.features(self.engine, setting.front_end)[chosen]
        batch = self.engine.batch(features, setting)
        assert batch.macs is not None
        logs = _log_softmax(batch.logits)
        dense, targets = self.dense[chosen], self.targets[chosen]
        whole, mhsa = dense_macs(self.config), slice(0, len(MHSA_PRODUCTS))
        cost_weight = self.pool.weights(self.cost_mix, chosen)
        return Measurement(
            setting,
            logs.argmax(axis=1) == targets,
            self.dense_right[chosen],
            1 - np.exp(logs[np.arange(len(chosen)), targets]),
            self.dense_error[chosen],
            (np.exp(dense) * (dense - logs)).sum(axis=1),
            100 * batch.macs.sum(axis=(1, 2)) / whole.sum(),
            100 * batch.macs[:, :, mhsa].sum(axis=(1, 2)) / whole[:, mhsa].sum(),
            self._executed_mhsa(batch, cost_weight),
            self.pool.weights(self.mix, chosen),
            cost_weight,
            self.pool.groups[chosen],
            self._predicted(batch, chosen) if self.cost else None,
            self._distance(logs, setting.front_end, chosen) if distance else None,
        )

    def _distance(
        self, logs: Floats, front_end: FrontEndSetting, chosen: NDArray[np.int64]
    ) -> Floats:
        """Return the distances (chosen,) from the dense logits, without their common offset."""
        if front_end not in self._dense:
            features = self.pool.features(self.engine, front_end)
            self._dense[front_end] = _log_softmax(self.engine.batch(features).logits)
        gap = logs - self._dense[front_end][chosen]
        gap -= gap.mean(axis=1, keepdims=True)
        return np.asarray(np.sqrt((gap**2).sum(axis=1)))

    def _executed_mhsa(self, batch: Batch, weights: Floats) -> float:
        """Return the executed MACs of attention in percent of dense, over clips so weighted."""
        assert batch.macs is not None
        assert batch.nonzeros is not None
        counts, kept = (np.tensordot(weights, t, axes=1) for t in (batch.macs, batch.nonzeros))
        percent = Macs(self.config, counts, kept, self.engine.isa).executed_mhsa_percent
        assert percent is not None
        return percent

    def fit_cost(self) -> None:
        """Fit a cost model to clips of every group that costs."""
        features = self.pool.features(self.engine, PLAIN)
        clips = [
            np.flatnonzero(self.pool.groups == GROUPS.index(group))[:COST_CLIPS]
            for group in self.cost_mix.groups
        ]
        self.cost = fit(self.engine, np.ascontiguousarray(features[np.concatenate(clips)]))

    def _predicted(self, batch: Batch, chosen: NDArray[np.int64]) -> float:
        """Return the time of a clip of the cost mix by the cost model."""
        assert self.cost is not None
        assert batch.nonzeros is not None
        weights = self.pool.weights(self.cost_mix, chosen)
        return float(self.cost.milliseconds(batch.nonzeros) @ weights)

    def milliseconds(self, setting: Setting = DENSE) -> float:
        """Return the time of a clip of the cost mix on one core, from features to logits."""
        features = self.pool.features(self.engine, setting.front_end)
        total = 0.0
        for group in self.cost_mix.groups:
            members = np.flatnonzero(self.pool.groups == GROUPS.index(group))[:TIMED_CLIPS]
            clips = np.ascontiguousarray(features[members])
            total += self.cost_mix[group] * milliseconds_per_clip(self.engine, clips, setting)
        return total


def _log_softmax(logits: NDArray[np.float32]) -> Floats:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
