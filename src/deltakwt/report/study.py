"""What all sections of a report share: the model, the clips, the settings, and their runs.

The clips are all words of a split, one clip of digital silence (as in the paper) that counts as
often as its class has clips, and the recorded noise of the data set. The two kinds of silence are
always measured apart.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE
from deltakwt.core.engine import Batch, Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model
from deltakwt.core.setting import (
    DENSE,
    PAPER_THRESHOLDS,
    PLAIN,
    WHOLE_THRESHOLDS,
    FrontEndSetting,
    Setting,
    Thresholds,
)
from deltakwt.data.speech_commands import Clip, Failed, Manifest, batches, draw, read
from deltakwt.report import paper

PAPER = Setting(PAPER_THRESHOLDS, name="the paper's thresholds")
WHOLE = Setting(WHOLE_THRESHOLDS, name="whole model")
READ_AT_ONCE = 512  # clips
RUN_AT_ONCE = 256  # clips between two steps of the progress bar

Features = NDArray[np.float32]
Step = Callable[[int], None]
Remember = Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]  # name, how to compute it


@dataclass
class Sample:
    """The clips: all words, then one digital silence if the model has that label, then noise."""

    manifest: Manifest
    labels: tuple[str, ...]
    zeros: int  # how often the digital silence counts; 0 if the model has no such label
    failed: list[Failed] = field(default_factory=list)
    _features: dict[FrontEndSetting, Features] = field(default_factory=dict)

    @property
    def clips(self) -> tuple[Clip, ...]:
        return self.manifest.clips

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def targets(self) -> NDArray[np.int64]:
        """The number of each clip's label (n,)."""
        return np.array([self.labels.index(clip.label) for clip in self.clips])

    @property
    def is_zero(self) -> NDArray[np.bool_]:
        return np.array([clip.path is None for clip in self.clips])

    @property
    def is_noise(self) -> NDArray[np.bool_]:
        return np.array([c.path is not None and c.label == SILENCE for c in self.clips])

    @property
    def is_word(self) -> NDArray[np.bool_]:
        """Whether each clip is a word, unknown words included (n,)."""
        return ~(self.is_zero | self.is_noise)

    def weights(self, silence: str) -> NDArray[np.float64]:
        """Return how often each clip counts when silence is "zero" or "noise" (n,)."""
        if silence == "zero":
            return np.where(self.is_zero, self.zeros, np.where(self.is_noise, 0.0, 1.0))
        return np.where(self.is_zero, 0.0, 1.0)

    def features(self, front_end: FrontEndSetting = PLAIN) -> Features:
        """Return features (n, frames, 40) of all clips with that front end."""
        return self._features[front_end]

    def load(
        self, engine: Engine, front_ends: set[FrontEndSetting], step: Step, threads: int
    ) -> None:
        """Read every clip once. Clips that cannot be read are left out and kept in `failed`."""
        kept: list[Clip] = []
        parts: dict[FrontEndSetting, list[Features]] = {front_end: [] for front_end in front_ends}
        cores = threads or os.cpu_count() or 1
        for clips, sounds in batches(self.manifest, READ_AT_ONCE, cores, self.failed.append):
            kept += clips
            for front_end in front_ends:
                parts[front_end] += [engine.features(sound, front_end) for sound in sounds]
            step(len(clips))
        if not kept:
            raise DeltakwtError(f"{self.manifest.root}: no clip could be read")
        old = self.manifest
        self.manifest = Manifest(old.root, old.split, old.silence, old.seed, tuple(kept))
        self._features = {front_end: np.stack(rows) for front_end, rows in parts.items()}

    def sound(self, index: int) -> NDArray[np.float32]:
        """Return the samples (16000,) of a clip."""
        return read(self.manifest, self.clips[index])

    def spread(self, count: int, choose: NDArray[np.bool_] | None = None) -> list[int]:
        """Return about `count` clips, evenly over the list and so over the classes."""
        pool = np.flatnonzero(self.is_word if choose is None else choose)
        if not len(pool):
            pool = np.arange(len(self))
        picks = np.linspace(0, len(pool) - 1, min(count, len(pool))).astype(int)
        return [int(i) for i in pool[picks]]


def draw_sample(
    root: Path, labels: tuple[str, ...], split: str, seed: int, limit: int | None
) -> Sample:
    """Return the clips of a split, with both kinds of silence where there are any."""
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


@dataclass
class Study:
    """One report in the making. Every setting is run over the clips once."""

    model: Model
    sample: Sample
    setting: Setting  # the one that is looked at closely
    threads: int = 0
    step: Step = lambda clips: None
    remember: Remember = lambda name, compute: compute()
    _batches: dict[Setting, Batch] = field(default_factory=dict)

    def batch(self, setting: Setting) -> Batch:
        """Return the results of all clips with this setting."""
        if setting not in self._batches:
            self._batches[setting] = self._run(setting)
        return self._batches[setting]

    def _run(self, setting: Setting) -> Batch:
        features = self.sample.features(setting.front_end)
        parts = []
        for start in range(0, len(features), RUN_AT_ONCE):
            chunk = features[start : start + RUN_AT_ONCE]
            parts.append(self.model.engine.batch(chunk, setting, threads=self.threads))
            self.step(len(chunk))
        logits = np.concatenate([part.logits for part in parts])
        if setting.thresholds is None:
            return Batch(logits, None, None)
        macs = [part.macs for part in parts if part.macs is not None]
        nonzeros = [part.nonzeros for part in parts if part.nonzeros is not None]
        return Batch(logits, np.concatenate(macs), np.concatenate(nonzeros))

    def macs(self, setting: Setting, weights: NDArray[Any]) -> Macs:
        """Return both counts with this setting: the mean over the clips, weighted (n,)."""
        batch = self.batch(setting)
        assert batch.macs is not None
        assert batch.nonzeros is not None
        counts, kept = (
            np.tensordot(weights, table, axes=1) / weights.sum()
            for table in (batch.macs, batch.nonzeros)
        )
        return Macs(self.model.config, counts, kept, self.model.engine.isa)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of `setting`; a report always looks at deltas."""
        assert self.setting.thresholds is not None
        return self.setting.thresholds

    def accuracy(self, logits: NDArray[np.float32], silence: str) -> float | None:
        """Return percent right with silence as "zero" or "noise"; None if there is no noise."""
        if silence == "noise" and not self.sample.is_noise.any():
            return None
        weights = self.sample.weights(silence)
        right = logits.argmax(axis=1) == self.sample.targets
        return float(100 * (weights * right).sum() / weights.sum())

    def group_accuracy(self, logits: NDArray[np.float32], group: NDArray[np.bool_]) -> float | None:
        """Return percent right within a group of clips (n,); None if it is empty."""
        if not group.any():
            return None
        right = logits.argmax(axis=1) == self.sample.targets
        return float(100 * right[group].mean())

    def example(self, label: str) -> int:
        """Return the first clip of a class that the dense model gets right, else its first."""
        mine = np.array([clip.label == label for clip in self.sample.clips])
        mine &= ~self.sample.is_noise  # the paper's silence is digital
        right = self.batch(DENSE).logits.argmax(axis=1) == self.sample.targets
        found = np.flatnonzero(mine & right)
        found = found if len(found) else np.flatnonzero(mine)
        return int(found[0])

    @property
    def word(self) -> str:
        """The word of the heat maps: the paper's, if this model and these clips have it."""
        present = [
            c.label for c, word in zip(self.sample.clips, self.sample.is_word, strict=True) if word
        ]
        words = [label for label in present if not label.startswith("_")] or present
        return paper.WORD if paper.WORD in words else words[0]

    @property
    def layer(self) -> int:
        """The layer of the heat maps, counted from zero."""
        return min(paper.LAYER, self.model.config.layers) - 1
