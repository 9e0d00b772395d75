"""What a setting costs and what it loses, on the first n clips of a pool."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.macs import dense_macs
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.tune.mix import GROUPS, Mix
from deltakwt.tune.pool import Pool
from deltakwt.tune.space import Point

Floats = NDArray[np.float64]
POINTS_PER_NAT = 45.0  # of mean divergence, as KWT-1 loses them
TIMED_CLIPS = 64
TIMED_RUNS = 3


@dataclass(frozen=True)
class Measured:
    """One setting on n clips, each clip against the dense model on plain features."""

    point: Point
    right: NDArray[np.bool_]  # (n,) the label is found (or, without labels, the dense answer)
    dense_right: NDArray[np.bool_]  # (n,)
    doubt: Floats  # (n,) 1 - probability of the target
    dense_doubt: Floats  # (n,)
    divergence: Floats  # (n,) KL(dense || delta) in nats
    percent: Floats  # (n,) MACs of the whole model
    mhsa_percent: Floats  # (n,)
    weight: Floats  # (n,) in accuracy; sums to 1
    cost_weight: Floats  # (n,) in cost; sums to 1
    groups: NDArray[np.int64]  # (n,)
    ms: float | None = None  # a clip, one core, features to logits
    distance: Floats | None = None  # (n,) of the logits from the dense ones on the same features

    def __len__(self) -> int:
        return len(self.right)

    @property
    def accuracy(self) -> float:
        """Percent."""
        return float(100 * self.weight @ self.right)

    @property
    def dense_accuracy(self) -> float:
        return float(100 * self.weight @ self.dense_right)

    @property
    def loss(self) -> float:
        """Points of accuracy that the dense model has more."""
        return self.dense_accuracy - self.accuracy

    @property
    def soft_loss(self) -> float:
        """Points of expected error more than dense: smooth where `loss` counts whole clips."""
        return float(100 * self.weight @ (self.doubt - self.dense_doubt))

    @property
    def strain(self) -> float:
        """The smooth loss that a search follows, in points.

        Half of it counts how far every answer moved, wrong ones too. Of all figures of one half
        of the validation clips, divergence tells most about the loss on the other half.
        """
        return (self.soft_loss + POINTS_PER_NAT * self.kl) / 2

    @property
    def drift(self) -> float:
        """Mean distance of the logits. Every clip adds to it, not only those in doubt, so that it
        tells the worth of single thresholds apart with few clips.
        """
        assert self.distance is not None, "ask for it"
        return float(self.weight @ self.distance)

    @property
    def kl(self) -> float:
        return float(self.weight @ self.divergence)

    @property
    def macs(self) -> float:
        """Percent of the whole model's MACs, over the cost mix."""
        return float(self.cost_weight @ self.percent)

    @property
    def mhsa(self) -> float:
        return float(self.cost_weight @ self.mhsa_percent)

    @cached_property
    def deficit(self) -> float:
        """The loss that a choice goes by: half in whole clips, half in probability.

        Both mean points of accuracy; together they vary less from clips to other clips.
        """
        return (self.loss + self.soft_loss) / 2

    @cached_property
    def deficit_error(self) -> float:
        """Standard error of `deficit`."""
        clips = self.dense_right.astype(float) - self.right
        return self._error((clips + self.doubt - self.dense_doubt) / 2)

    @cached_property
    def loss_error(self) -> float:
        """Standard error of `loss`: the clips are paired, only those that change count."""
        return self._error(self.dense_right.astype(float) - self.right)

    def _error(self, change: Floats) -> float:
        variance = 0.0
        for group in np.unique(self.groups):
            mine = self.groups == group
            variance += self.weight[mine].sum() ** 2 * change[mine].var() / mine.sum()
        return float(100 * np.sqrt(variance))

    def by_group(self) -> dict[str, dict[str, float]]:
        """Accuracy and MACs, group by group."""
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


class Judge:
    """Measures settings of one model on one pool, with one mix."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        pool: Pool,
        mix: Mix,
        cost_mix: Mix | None = None,
        timed: bool = False,
    ) -> None:
        self.config, self.engine, self.pool = config, engine, pool
        self.mix, self.cost_mix, self.timed = mix, cost_mix or mix, timed
        features = pool.features(engine, PLAIN)
        self.dense = _log_softmax(engine.batch(features).logits)  # (n, labels)
        self._dense: dict[FrontEndSetting, Floats] = {PLAIN: self.dense}
        answers = self.dense.argmax(axis=1)
        self.targets = pool.targets if pool.labelled else answers
        self.dense_right = answers == self.targets
        rows = np.arange(len(pool))
        self.dense_doubt = 1 - np.exp(self.dense[rows, self.targets])

    def measure(
        self, point: Point, count: int | None = None, turn: int = 0, *, drift: bool = False
    ) -> Measured:
        """On `count` clips, or all of them; another turn takes others."""
        chosen = self.pool.window(count, turn)
        features = self.pool.features(self.engine, point.front_end)[chosen]
        batch = self.engine.batch(features, thresholds=point.thresholds)
        assert batch.macs is not None
        logs = _log_softmax(batch.logits)
        dense, targets = self.dense[chosen], self.targets[chosen]
        whole = dense_macs(self.config)
        return Measured(
            point,
            logs.argmax(axis=1) == targets,
            self.dense_right[chosen],
            1 - np.exp(logs[np.arange(len(chosen)), targets]),
            self.dense_doubt[chosen],
            (np.exp(dense) * (dense - logs)).sum(axis=1),
            100 * batch.macs.sum(axis=(1, 2)) / whole.sum(),
            100 * batch.macs[:, :, :4].sum(axis=(1, 2)) / whole[:, :4].sum(),
            self.pool.weights(self.mix, chosen),
            self.pool.weights(self.cost_mix, chosen),
            self.pool.groups[chosen],
            self.milliseconds(point) if self.timed else None,
            self._distance(logs, point.front_end, chosen) if drift else None,
        )

    def _distance(
        self, logs: Floats, front_end: FrontEndSetting, chosen: NDArray[np.int64]
    ) -> Floats:
        """(chosen,) from the dense logits on the same features, whatever their common offset."""
        if front_end not in self._dense:
            features = self.pool.features(self.engine, front_end)
            self._dense[front_end] = _log_softmax(self.engine.batch(features).logits)
        gap = logs - self._dense[front_end][chosen]
        gap -= gap.mean(axis=1, keepdims=True)
        return np.asarray(np.sqrt((gap**2).sum(axis=1)))

    def milliseconds(self, point: Point | None) -> float:
        """A clip of the cost mix on one core, features to logits; None is the dense model.

        Of several runs the fastest, since whatever else the machine does only adds.
        """
        chosen, weight = self._timed_clips()
        front_end = point.front_end if point else PLAIN
        thresholds = point.thresholds if point else None
        features = self.pool.features(self.engine, front_end)
        total = 0.0
        for members, share in zip(chosen, weight, strict=True):
            clips = np.ascontiguousarray(features[members])
            total += share * _fastest(self.engine, clips, thresholds)
        return total

    def _timed_clips(self) -> tuple[list[NDArray[np.int64]], list[float]]:
        """Some clips of each group that costs, and what the group weighs."""
        chosen, weights = [], []
        for group in self.cost_mix.groups:
            members = np.flatnonzero(self.pool.groups == GROUPS.index(group))
            chosen.append(members[:TIMED_CLIPS])
            weights.append(self.cost_mix[group])
        return chosen, weights


def _fastest(engine: Engine, features: NDArray[np.float32], thresholds: Thresholds | None) -> float:
    """Milliseconds a clip, of the processor's time: on one thread that is the time it takes, but
    for what else the machine does.
    """
    times = []
    for _ in range(TIMED_RUNS):
        start = time.process_time()
        engine.batch(features, thresholds=thresholds, threads=1)
        times.append(time.process_time() - start)
    return 1e3 * min(times) / len(features)


def _log_softmax(logits: NDArray[np.float32]) -> Floats:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
