"""Goals, the choice of the settings that meet them, and the profiles made of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs, fewest_macs
from deltakwt.core.setting import Profile, Profiles, Setting
from deltakwt.locks import locked
from deltakwt.tune.measure import Z_ONE_SIDED, Evaluator, Interval, Measurement
from deltakwt.weights.folder import load_profiles, save_profiles

RESERVE = 0.5  # standard errors of the loss that a choice keeps in reserve
LEAST_GROUP_CLIPS = 50  # the loss of a smaller group is too uncertain to count

# The profiles that a tuning without goals makes, and the points of accuracy each may lose.
# `accurate` must not lose anything that can be measured.
NAMED = {"accurate": 0.0, "balanced": 0.25, "fast": 1.0}
DEFAULT = "accurate"

T = TypeVar("T")
Values = tuple[float, float]  # loss, cost: less is better


class Unreachable(DeltakwtError):
    """No setting meets the goals; the message names the nearest ones."""

    exit_code = 1


@dataclass(frozen=True)
class Goals:
    """The most that a setting may lose and cost. None is no limit."""

    max_loss: float | None = None  # points of accuracy
    max_macs: float | None = None  # percent of the whole model
    max_ms: float | None = None  # per clip
    agree: float | None = None  # percent of clips with the dense model's answer
    by_time: bool = False  # cost is time even without a limit of it

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.max_loss, self.max_macs, self.max_ms, self.agree))

    @property
    def cost(self) -> str:
        """The measure of cost: "macs" or "ms"."""
        return "ms" if self.by_time or self.max_ms is not None else "macs"

    @property
    def loss_limit(self) -> float | None:
        """Points that may be lost; with --agree, percent of answers that may differ."""
        return self.max_loss if self.agree is None else 100 - self.agree

    @property
    def cost_limit(self) -> float | None:
        """Percent of the MACs, or milliseconds."""
        return self.max_macs if self.max_ms is None else self.max_ms

    def check(self, config: Config) -> None:
        """Raise an error if the goals contradict each other or the model's shape."""
        if self.agree is not None and self.max_loss is not None:
            raise DeltakwtError(
                "--agree and --max-loss exclude each other: agreement is for data without labels"
            )
        if self.max_macs is not None and self.max_ms is not None:
            raise DeltakwtError("--max-macs and --max-ms exclude each other; give one of them")
        if self.agree is not None and not 0 < self.agree <= 100:
            raise DeltakwtError(f"--agree {self.agree:g}: must be a percentage up to 100")
        if self.max_loss is not None and not 0 <= self.max_loss < 100:
            raise DeltakwtError(f"--max-loss {self.max_loss:g}: must be 0 to 100 points")
        if self.max_macs is not None and self.by_time:
            raise DeltakwtError("--max-macs and --cost ms exclude each other; give one of them")
        if self.max_ms is not None and not self.max_ms > 0:
            raise DeltakwtError(f"--max-ms {self.max_ms:g}: must be above 0")
        least = 100 * fewest_macs(config).sum() / dense_macs(config).sum()
        if self.max_macs is not None and not self.max_macs >= least:
            raise DeltakwtError(
                f"--max-macs {self.max_macs:g}: cannot be reached, this model always runs"
                f" {least:.2f}% (its class token and first token)"
            )

    def __str__(self) -> str:
        parts = []
        if self.agree is not None:
            parts.append(f"agreement of at least {self.agree:g}%")
        if self.max_loss is not None:
            parts.append(f"a loss of at most {self.max_loss:g} points")
        if self.max_macs is not None:
            parts.append(f"at most {self.max_macs:g}% of the MACs")
        if self.max_ms is not None:
            parts.append(f"at most {self.max_ms:g} ms per clip")
        return " and ".join(parts)


def pareto(items: Iterable[T], values: Callable[[T], Values]) -> list[T]:
    """Return the items that no other item beats in loss and cost, cheapest last."""
    front: list[T] = []
    best = float("inf")
    # In the order of loss, the cheapest of equal losses first, an item belongs to the front if it
    # is cheaper than all before it.
    for item in sorted(items, key=values):
        cost = values(item)[1]
        if cost < best:
            front.append(item)
            best = cost
    return front


def dominated(candidate: Values, front: Sequence[Values], slack: float = 0.0) -> bool:
    """Return whether an item of the front costs no more and loses less, by more than `slack`."""
    return any(cost <= candidate[1] and loss + slack < candidate[0] for loss, cost in front)


@dataclass(frozen=True)
class Candidate:
    """A setting measured on all clips of the search."""

    measurement: Measurement
    cost: float
    loss: float  # as estimated by `estimate`


def estimate(front: Sequence[Measurement], costs: Sequence[float]) -> list[Candidate]:
    """Return candidates, cheapest first, with losses made monotone (pool adjacent violators).

    A few clips more or less are chance, and a choice by the raw loss would take the luckiest
    setting. Along a front more MACs do not lose more, so neighbours that contradict this get their
    mean loss.
    """
    order = np.argsort(costs)
    blocks: list[tuple[float, int]] = []  # mean loss, members
    for index in order:
        blocks.append((front[index].blended_loss, 1))
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append(((a * n + b * m) / (n + m), n + m))
    losses = [loss for loss, members in blocks for _ in range(members)]
    return [
        Candidate(front[i], float(costs[i]), loss) for i, loss in zip(order, losses, strict=True)
    ]


def choose(candidates: Sequence[Candidate], goals: Goals) -> Candidate:
    """Return the cheapest setting within the loss, or the most accurate one within the cost."""
    if not candidates:
        raise Unreachable("the search found no setting; give it more --trials")
    limit, most = goals.loss_limit, goals.cost_limit
    affordable = [c for c in candidates if most is None or c.cost <= most]
    good = [c for c in affordable if limit is None or within(c, limit)]
    if not good:
        raise Unreachable(_nearest(candidates, affordable, goals))
    if limit is None:
        return min(good, key=lambda c: (c.loss, c.cost))
    return min(good, key=lambda c: c.cost)


def within(candidate: Candidate, limit: float) -> bool:
    """Return whether the loss stays within the limit, over the mix and in every group.

    Over the mix, half a standard error (at most half the limit) is kept in reserve. A limit of
    zero allows a loss that cannot be measured: one that is no larger than its standard error.
    """
    error = candidate.measurement.blended_error
    if not limit:
        overall = candidate.loss <= error
    else:
        overall = candidate.loss + min(RESERVE * error, limit / 2) <= limit
    return overall and not groups_over(candidate.measurement, limit)


def groups_over(measurement: Measurement, limit: float) -> list[str]:
    """Return the groups of the mix that lose more than the limit, beyond the sampling error.

    A group counts if it has at least LEAST_GROUP_CLIPS clips. The sampling error is that of a
    one-sided test at 95%: a group is smaller than the mix, so its loss is less certain.
    """
    return [
        group
        for group, (clips, loss, error) in measurement.group_losses().items()
        if clips >= LEAST_GROUP_CLIPS and loss > limit + Z_ONE_SIDED * error
    ]


def _nearest(candidates: Sequence[Candidate], affordable: Sequence[Candidate], goals: Goals) -> str:
    """Return the message that names the settings nearest to the goals."""
    unit = " ms" if goals.cost == "ms" else "% of the MACs"
    best = min(candidates, key=lambda c: (c.loss, c.cost))
    near = [best]
    limit = goals.loss_limit
    if limit is not None:
        near += sorted((c for c in candidates if within(c, limit)), key=lambda c: c.cost)[:1]
    if affordable:
        near.append(min(affordable, key=lambda c: c.loss))
    else:
        near.append(min(candidates, key=lambda c: c.cost))
    points = dict.fromkeys(f"{c.loss:+.2f} points at {c.cost:.2f}{unit}" for c in near)
    over = groups_over(best.measurement, limit) if limit is not None else []
    groups = f"; the most accurate one loses more in the group {', '.join(over)}" if over else ""
    return f"no setting found with {goals}; nearest: {', '.join(points)} (loss at cost){groups}"


@dataclass(frozen=True)
class Choice:
    """A chosen setting: its figures in the search and on the test clips."""

    name: str
    goal: str
    searched: Candidate
    test: Measurement
    accuracy_interval: Interval
    loss_interval: Interval
    ms: float
    dense_ms: float

    @property
    def setting(self) -> Setting:
        return self.test.setting

    def to_json(self) -> dict[str, Any]:
        found = self.test.to_json()
        del found["ms"]
        searched = self.searched.measurement
        return {
            "goal": self.goal,
            "accuracy": found.pop("accuracy"),
            "accuracy_interval": list(self.accuracy_interval),
            "dense_accuracy": found.pop("dense_accuracy"),
            "loss": found.pop("loss"),
            "loss_interval": list(self.loss_interval),
            "macs_percent": found.pop("macs_percent"),
            "mhsa_percent": found.pop("mhsa_percent"),
            "ms": self.ms,
            "dense_ms": self.dense_ms,
            **found,
            "search": {
                "clips": len(searched),
                "loss": searched.loss,
                "macs_percent": searched.macs,
            },
        }

    def profile(self, facts: dict[str, Any], command: str) -> Profile:
        """Return the profile; `facts` say on what data, mix, seed and machine it was measured."""
        return Profile(self.name, self.setting, {**self.to_json(), **facts}, command)


def confirm(name: str, goal: str, chosen: Candidate, test: Evaluator, seed: int) -> Choice:
    """Measure a chosen setting once on the test clips."""
    setting = chosen.measurement.setting
    measurement = test.measure(setting)
    return Choice(
        name,
        goal,
        chosen,
        measurement,
        measurement.accuracy_interval(),
        measurement.loss_interval(seed),
        test.milliseconds(setting),
        test.milliseconds(),
    )


def write_profiles(folder: Path, profiles: Sequence[Profile]) -> Profiles:
    """Add profiles to a model folder. Its lock is held, because two tunings may run at once."""
    with locked(folder, wait=True):
        return add_profiles(folder, profiles)


def add_profiles(folder: Path, profiles: Sequence[Profile]) -> Profiles:
    """Add profiles to a folder whose lock the caller holds; `accurate` becomes the default."""
    known = load_profiles(folder)
    for profile in profiles:
        known = known.with_profile(profile, default=profile.name == DEFAULT)
    save_profiles(folder, known)
    return known
