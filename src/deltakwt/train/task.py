"""What is learned: which clips of a cache are which label, in which split, in which order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt.config import SILENCE, UNKNOWN
from deltakwt.errors import DeltakwtError
from deltakwt.train import augment
from deltakwt.train.cache import Cache

SILENT = -1  # in place of a clip: noise drawn when the clip is asked for


@dataclass(frozen=True)
class Task:
    """The clips of one split, by label."""

    labels: tuple[str, ...]
    wanted: NDArray[np.int64]  # rows of the cache
    wanted_label: NDArray[np.int64]  # their labels
    others: NDArray[np.int64]  # rows of all other words
    unknown_share: float = 0.18  # of the wanted clips, drawn anew each epoch
    silence_share: float = 0.10

    def epoch(self, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows (SILENT for silence) and labels of one epoch, shuffled."""
        rng = np.random.default_rng((seed, epoch))
        rows, labels = [self.wanted], [self.wanted_label]
        if UNKNOWN in self.labels and len(self.others):
            count = min(int(np.ceil(self.unknown_share * len(self.wanted))), len(self.others))
            rows.append(rng.choice(self.others, count, replace=False))
            labels.append(np.full(count, self.labels.index(UNKNOWN)))
        if SILENCE in self.labels:
            count = int(np.ceil(self.silence_share * len(self.wanted)))
            rows.append(np.full(count, SILENT))
            labels.append(np.full(count, self.labels.index(SILENCE)))
        order = rng.permutation(sum(map(len, rows)))
        return np.concatenate(rows)[order], np.concatenate(labels)[order]


def split_of(file: str) -> str:
    """training, validation or testing, by the speaker in the file's name (facts of the data set)."""
    speaker = file.rsplit("/", 1)[-1].split("_nohash_")[0]
    number = int(hashlib.sha1(speaker.encode()).hexdigest(), 16) % 2**27
    percent = number * 100.0 / (2**27 - 1)
    return "validation" if percent < 10 else "testing" if percent < 20 else "training"


def make_task(cache: Cache, labels: tuple[str, ...], split: str) -> Task:
    """The task on one split of the cache."""
    words = [file.split("/")[0] for file in cache.files]
    inside = np.array([split_of(file) == split for file in cache.files])
    label = np.array([labels.index(word) if word in labels else -1 for word in words])
    for word in labels:
        if word not in (SILENCE, UNKNOWN) and not np.any(inside & (label == labels.index(word))):
            raise DeltakwtError(f"{word}: no {split} clip of this word; add recordings or drop it")
    wanted = np.flatnonzero(inside & (label >= 0))
    return Task(labels, wanted, label[wanted], np.flatnonzero(inside & (label < 0)))


def clips_of(cache: Cache, rows: NDArray[np.int64]) -> Tensor:
    """(n, 16000) float in [-1, 1]; silent rows are zero."""
    clips = torch.zeros(len(rows), cache.audio.shape[1])
    spoken = np.flatnonzero(rows >= 0)
    if len(spoken):
        clips[spoken] = torch.from_numpy(cache.audio[rows[spoken]].astype(np.float32) / 32768)
    return clips


def validation_set(
    cache: Cache, task: Task, noises: list[Tensor], seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Clips (n, 16000) and labels of a whole split, fixed by the seed; 10% unknown, 10% silence.

    Half of the silence is digital zero and half recorded noise at all volumes.
    """
    from dataclasses import replace

    rows, labels = replace(task, unknown_share=0.1).epoch(seed, 0)
    clips = clips_of(cache, rows)
    silent = torch.from_numpy(rows == SILENT).nonzero()[:, 0][::2]
    rng = torch.Generator().manual_seed(seed)
    noise = augment.noise_segments(noises, len(silent), rng) if noises else 0.0
    clips[silent] = noise * 10 ** (-2 * torch.rand(len(silent), 1, generator=rng))
    return clips, torch.from_numpy(labels)
