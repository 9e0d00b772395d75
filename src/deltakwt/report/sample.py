"""The clips of a report: words once, silence twice (digital zero and recorded noise), as features.

Both silences are always measured and never mixed: the paper's digital silence is one clip that
counts as often as its class has clips, the noise clips are a group of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, FrontEndSetting
from deltakwt.data.speech_commands import Clip, Failed, Manifest, batches, draw, read

Features = NDArray[np.float32]
BATCH = 512


@dataclass
class Sample:
    """The clips: all words, then one digital silence if the model knows silence, then noise."""

    manifest: Manifest
    labels: tuple[str, ...]
    zeros: int  # how often the digital silence counts; 0: the model has no such label
    failed: list[Failed] = field(default_factory=list)
    _features: dict[FrontEndSetting, Features] = field(default_factory=dict)

    @property
    def clips(self) -> tuple[Clip, ...]:
        return self.manifest.clips

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def targets(self) -> NDArray[np.int64]:
        """(n,) number of each clip's label."""
        return np.array([self.labels.index(clip.label) for clip in self.clips])

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        return np.array([clip.path is None for clip in self.clips])

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        return np.array([c.path is not None and c.label == SILENCE for c in self.clips])

    @property
    def is_word(self) -> NDArray[np.bool_]:
        """Words and unknown words."""
        return ~(self.is_zero | self.is_noise)

    def weights(self, silence: str) -> NDArray[np.float64]:
        """(n,) how often each clip counts when silence is "zero" or "noise"."""
        if silence == "zero":
            return np.where(self.is_zero, self.zeros, np.where(self.is_noise, 0.0, 1.0))
        return np.where(self.is_zero, 0.0, 1.0)

    def features(self, front_end: FrontEndSetting = PLAIN) -> Features:
        """(n, 98, 40) through that front end."""
        return self._features[front_end]

    def load(
        self,
        engine: Engine,
        front_ends: set[FrontEndSetting],
        step: Callable[[int], None],
        threads: int,
    ) -> None:
        """Read every clip once; those that cannot be read are left out and kept in `failed`."""
        kept: list[Clip] = []
        parts: dict[FrontEndSetting, list[Features]] = {front_end: [] for front_end in front_ends}
        cores = threads or os.cpu_count() or 1
        for clips, sounds in batches(self.manifest, BATCH, cores, self.failed.append):
            kept += clips
            for front_end in front_ends:
                parts[front_end] += [engine.features(sound, front_end) for sound in sounds]
            step(len(clips))
        if not kept:
            raise DeltakwtError(f"{self.manifest.root}: no clip could be read")
        self.manifest = Manifest(
            self.manifest.root,
            self.manifest.split,
            self.manifest.silence,
            self.manifest.seed,
            tuple(kept),
        )
        self._features = {front_end: np.stack(rows) for front_end, rows in parts.items()}

    def sound(self, index: int) -> NDArray[np.float32]:
        """(16000,)"""
        return read(self.manifest, self.clips[index])

    def spread(self, count: int, choose: NDArray[np.bool_] | None = None) -> list[int]:
        """About `count` clips, evenly over the list and so over the classes."""
        pool = np.flatnonzero(self.is_word if choose is None else choose)
        if not len(pool):
            pool = np.arange(len(self))
        picks = np.linspace(0, len(pool) - 1, min(count, len(pool))).astype(int)
        return [int(i) for i in pool[picks]]


def draw_sample(
    root: Path, labels: tuple[str, ...], split: str, seed: int, limit: int | None
) -> Sample:
    """The clips of a split, with both kinds of silence where there are any."""
    zero = draw(root, split, "zero", seed=seed, limit=limit, labels=labels)
    words = [clip for clip in zero.clips if clip.path is not None]
    zeros = len(zero.clips) - len(words)
    noise: list[Clip] = []
    if SILENCE in labels:
        try:
            noisy = draw(root, split, "noise", seed=seed, limit=limit, labels=labels)
            noise = [clip for clip in noisy.clips if clip.label == SILENCE]
        except DeltakwtError:  # a data set without recordings of noise
            noise = []
    silent = [Clip(None, SILENCE)] if zeros else []
    clips = (*words, *silent, *noise)
    return Sample(Manifest(root, split, "zero and noise", seed, clips), labels, zeros)
