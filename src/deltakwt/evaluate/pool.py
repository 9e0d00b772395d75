"""Clips in memory, sorted into groups, and the mix that says how much each group counts.

A pool is ordered so that every prefix is a stratified sample of the whole. A quick measurement
uses the first few hundred clips; a more exact one uses more clips from the same order.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, FrontEndSetting
from deltakwt.data.speech_commands import Failed

# Clips as they were recorded, then groups made from the spoken ones by augmentation.
RECORDED_GROUPS = ("words", "unknown", "zero", "noise")
AUGMENTED_GROUPS = ("telephone", "noisy", "shifted")
GROUPS = RECORDED_GROUPS + AUGMENTED_GROUPS
ZERO = GROUPS.index("zero")
FEATURE_CACHE_BYTES = 1 << 30  # features of the most recently used front ends
UNLABELLED = -1

Features = NDArray[np.float32]  # (n, frames, 40)
Progress = Callable[[float, float], None]  # done, in total


@dataclass(frozen=True)
class Mix:
    """The weight of each group; the weights sum to one.

    Accuracy and cost can have different mixes: a device that always listens spends most of its
    time on noise, while its accuracy is decided by words.
    """

    weights: tuple[float, ...]  # in the order of GROUPS

    @classmethod
    def parse(cls, text: str, option: str = "--mix") -> Mix:
        """Read "words=10,unknown=1,zero=1". Groups that are not named have weight zero."""
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, _, number = part.strip().partition("=")
            if name not in GROUPS:
                raise DeltakwtError(
                    f"{option} {text}: unknown group {name!r}; groups are {', '.join(GROUPS)}"
                )
            try:
                weights[name] = float(number)
            except ValueError:
                raise DeltakwtError(f"{option} {text}: {number!r} is not a number") from None
            if not 0 <= weights[name] < math.inf:
                raise DeltakwtError(f"{option} {text}: a weight must be 0 or more")
        if not any(weights.values()):
            raise DeltakwtError(f"{option} {text}: all weights are zero; make one of them positive")
        return cls.of(weights)

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> Mix:
        """Return the mix with these weights, scaled to sum to one."""
        total = sum(weights.values())
        return cls(tuple(weights.get(group, 0.0) / total for group in GROUPS))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups with a weight above zero."""
        return tuple(g for g, weight in zip(GROUPS, self.weights, strict=True) if weight)

    def __getitem__(self, group: str) -> float:
        return self.weights[GROUPS.index(group)]

    def __str__(self) -> str:
        return ",".join(f"{group}={self[group]:.4g}" for group in self.groups)


@dataclass
class Pool:
    """n clips with their groups and labels; the features of each front end are computed once."""

    name: str  # what these clips are, for reports
    audio: NDArray[np.float32]  # (n, 16000)
    groups: NDArray[np.int64]  # (n,) index into GROUPS
    targets: NDArray[np.int64]  # (n,) index of the label, or UNLABELLED
    sources: list[str]  # (n,) speaker or recording: never on both sides of a split
    failed: list[Failed] = field(default_factory=list)
    _features: OrderedDict[tuple[FrontEndSetting, int], Features] = field(
        default_factory=OrderedDict
    )

    def __len__(self) -> int:
        return len(self.audio)

    @property
    def labelled(self) -> bool:
        """Whether every clip has a label."""
        return bool((self.targets != UNLABELLED).all())

    def window(self, count: int | None, turn: int = 0) -> NDArray[np.int64]:
        """Return the numbers of `count` clips; each turn takes the next ones, cyclically.

        Digital silence is a single clip and belongs to every window.
        """
        numbers = np.arange(len(self))
        if count is None or count >= len(self):
            return numbers
        silent = self.groups == ZERO
        others = np.roll(numbers[~silent], -turn * count)
        return np.concatenate([numbers[silent], others])[:count]

    def weights(self, mix: Mix, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weight of each chosen clip: each group weighs what the mix says, in all 1."""
        groups = self.groups[chosen]
        sizes = np.bincount(groups, minlength=len(GROUPS))
        missing = [g for i, g in enumerate(GROUPS) if mix.weights[i] and not sizes[i]]
        if missing:
            raise DeltakwtError(f"{self.name}: has no clips of group {missing[0]!r} of the mix")
        return np.asarray((np.array(mix.weights) / np.maximum(sizes, 1))[groups])

    def features(self, engine: Engine, front_end: FrontEndSetting = PLAIN) -> Features:
        """Return the features (n, frames, 40) of one front end, from the cache where possible."""
        key = front_end, engine.config.stride
        if key not in self._features:
            made = engine.frontend.batch(self.audio, front_end)
            while self._features and (len(self._features) + 1) * made.nbytes > FEATURE_CACHE_BYTES:
                self._features.popitem(last=False)
            self._features[key] = made
        self._features.move_to_end(key)
        return self._features[key]

    def counts(self) -> dict[str, int]:
        """Return the number of clips of each group that has any."""
        sizes = np.bincount(self.groups, minlength=len(GROUPS))
        return {group: int(n) for group, n in zip(GROUPS, sizes, strict=True) if n}

    def fingerprint(self) -> str:
        """Return a hash of the sound, so that two pools with equal clips are recognised."""
        digest = hashlib.sha256(self.groups.tobytes() + self.targets.tobytes())
        digest.update(self.audio[:, ::97].tobytes())
        return digest.hexdigest()[:16]

    def take(self, chosen: Sequence[int] | NDArray[np.int64], name: str) -> Pool:
        """Return a pool of the chosen clips."""
        return Pool(
            name,
            self.audio[chosen],
            self.groups[chosen],
            self.targets[chosen],
            [self.sources[i] for i in chosen],
        )

    def joined(self, other: Pool) -> Pool:
        """Return a pool of these clips and the other's."""
        return Pool(
            self.name,
            np.concatenate([self.audio, other.audio]),
            np.concatenate([self.groups, other.groups]),
            np.concatenate([self.targets, other.targets]),
            self.sources + other.sources,
            self.failed + other.failed,
        )

    def hold_out(self, share: float, seed: int) -> tuple[Pool, Pool]:
        """Return two pools without a common speaker or recording: for the search, for the test.

        Digital silence is no recording and belongs to both.
        """
        silent = self.groups == ZERO
        sources = sorted(
            {s for s, is_silent in zip(self.sources, silent, strict=True) if not is_silent}
        )
        if len(sources) < 2:
            raise DeltakwtError(
                f"{self.name}: has one recording, none can be held out for the test; give --test"
            )
        random.Random(seed).shuffle(sources)
        held = set(sources[: max(1, round(share * len(sources)))])
        inside = np.array([source in held for source in self.sources])
        return (
            self.take(np.flatnonzero(~inside | silent), self.name),
            self.take(
                np.flatnonzero(inside | silent), f"{self.name}, {share:.0%} of speakers held out"
            ),
        )

    def stratified(self, seed: int) -> Pool:
        """Return the clips in an order whose prefixes keep the shares of all groups and labels."""
        rng = np.random.default_rng(seed)
        place = np.empty(len(self))
        for group, target in sorted(set(zip(self.groups, self.targets, strict=True))):
            members = np.flatnonzero((self.groups == group) & (self.targets == target))
            ranks = (rng.permutation(len(members)) + rng.random()) / len(members)
            place[members] = -1.0 if group == ZERO else ranks
        return self.take(np.argsort(place, kind="stable"), self.name)
