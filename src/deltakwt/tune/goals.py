"""Budgets, and the setting that meets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import dense_macs, fewest_macs
from deltakwt.tune.measure import Measured

RESERVE = 0.5  # standard errors of the loss, kept in hand

# What a search without goals makes: points of accuracy each profile may lose.
NAMED = {"lossless": 0.0, "balanced": 0.25, "fast": 1.0}


class Unreachable(DeltakwtError):
    """No setting found meets the budget; the message names the nearest ones."""

    exit_code = 1


@dataclass(frozen=True)
class Goals:
    """At most this loss, at most this cost. None is no limit."""

    max_loss: float | None = None  # points of accuracy
    max_macs: float | None = None  # percent of the whole model
    max_ms: float | None = None  # a clip
    agree: float | None = None  # percent of clips with the dense model's answer

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.max_loss, self.max_macs, self.max_ms, self.agree))

    @property
    def cost(self) -> str:
        return "macs" if self.max_ms is None else "ms"

    @property
    def loss_limit(self) -> float | None:
        """With --agree the loss counts answers that differ from the dense model's."""
        return self.max_loss if self.agree is None else 100 - self.agree

    @property
    def cost_limit(self) -> float | None:
        return self.max_macs if self.max_ms is None else self.max_ms

    def check(self, config: Config) -> None:
        """Refuse goals that contradict each other or the model's shape."""
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
        if self.max_ms is not None and not self.max_ms > 0:
            raise DeltakwtError(f"--max-ms {self.max_ms:g}: must be above 0")
        least = 100 * fewest_macs(config).sum() / dense_macs(config).sum()
        if self.max_macs is not None and not self.max_macs >= least:
            raise DeltakwtError(
                f"--max-macs {self.max_macs:g}: cannot be reached, this model always runs"
                f" {least:.2f}% (its class token and first token)"
            )

    def __str__(self) -> str:
        said = []
        if self.agree is not None:
            said.append(f"agreement of at least {self.agree:g}%")
        if self.max_loss is not None:
            said.append(f"a loss of at most {self.max_loss:g} points")
        if self.max_macs is not None:
            said.append(f"at most {self.max_macs:g}% of the MACs")
        if self.max_ms is not None:
            said.append(f"at most {self.max_ms:g} ms a clip")
        return " and ".join(said)


@dataclass(frozen=True)
class Candidate:
    """A setting measured on all clips of the search."""

    measured: Measured
    cost: float
    loss: float  # as estimated: see `estimate`


def estimate(front: Sequence[Measured], costs: Sequence[float]) -> list[Candidate]:
    """Candidates, cheapest first, with losses made monotone (pool adjacent violators).

    A few clips more or less right are luck, and choosing by them would choose the luckiest. Along
    a front more MACs do not lose more, so neighbours that contradict this share their mean.
    """
    order = np.argsort(costs)
    blocks: list[tuple[float, int]] = []  # mean loss, members
    for index in order:
        blocks.append((front[index].deficit, 1))
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append(((a * n + b * m) / (n + m), n + m))
    losses = [loss for loss, members in blocks for _ in range(members)]
    return [
        Candidate(front[i], float(costs[i]), loss) for i, loss in zip(order, losses, strict=True)
    ]


def choose(candidates: Sequence[Candidate], goals: Goals) -> Candidate:
    """The cheapest setting within the loss, or the one that loses least within the cost."""
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
    """Whether the loss stays below the limit, with a reserve for chance.

    The reserve is at most half the limit. A limit of zero asks for no loss that can be measured:
    one that is no larger than its own standard error.
    """
    error = candidate.measured.deficit_error
    if not limit:
        return candidate.loss <= error
    return candidate.loss + min(RESERVE * error, limit / 2) <= limit


def _nearest(candidates: Sequence[Candidate], affordable: Sequence[Candidate], goals: Goals) -> str:
    unit = "ms" if goals.cost == "ms" else "% of the MACs"
    near = [min(candidates, key=lambda c: (c.loss, c.cost))]
    limit = goals.loss_limit
    if limit is not None:
        near += sorted((c for c in candidates if within(c, limit)), key=lambda c: c.cost)[:1]
    if affordable:
        near.append(min(affordable, key=lambda c: c.loss))
    else:
        near.append(min(candidates, key=lambda c: c.cost))
    points = dict.fromkeys(
        f"{c.loss:+.2f} points at {c.cost:.2f}{'' if unit[0] == '%' else ' '}{unit}" for c in near
    )
    return f"no setting found with {goals}; nearest: {', '.join(points)} (loss at cost)"
