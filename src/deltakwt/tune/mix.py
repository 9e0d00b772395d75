"""The mix of clips: how much each kind of sound counts in accuracy and in cost.

A device that listens always hears noise far more often than words, while accuracy is a matter of
words. So the two have weights of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deltakwt.core.errors import DeltakwtError

GROUPS = ("words", "unknown", "zero", "noise")
OFFICIAL = "words=10,unknown=1,zero=1"  # as the twelve-class test sets are put together


@dataclass(frozen=True)
class Mix:
    """Weights of the groups; they sum to one."""

    weights: tuple[float, ...]  # in the order of GROUPS

    @classmethod
    def parse(cls, text: str, option: str = "--mix") -> Mix:
        """`words=10,unknown=1,zero=1`: groups left out weigh nothing."""
        weights = dict.fromkeys(GROUPS, 0.0)
        for part in text.split(","):
            name, _, number = part.strip().partition("=")
            if name not in weights:
                raise DeltakwtError(f"{option} {text}: unknown group {name!r}; {_known()}")
            try:
                weights[name] = float(number)
            except ValueError:
                raise DeltakwtError(f"{option} {text}: {number!r} is not a number") from None
            if not 0 <= weights[name] < math.inf:
                raise DeltakwtError(f"{option} {text}: a weight must be 0 or more")
        total = sum(weights.values())
        if not total:
            raise DeltakwtError(f"{option} {text}: all weights are zero")
        return cls(tuple(weights[group] / total for group in GROUPS))

    @property
    def groups(self) -> tuple[str, ...]:
        """Those that weigh anything."""
        return tuple(g for g, weight in zip(GROUPS, self.weights, strict=True) if weight)

    def __getitem__(self, group: str) -> float:
        return self.weights[GROUPS.index(group)]

    def __str__(self) -> str:
        return ",".join(f"{group}={self[group]:.4g}" for group in self.groups)


def _known() -> str:
    return f"groups are {', '.join(GROUPS)}"
