"""What is learned: which clips of a cache are which label, in which split, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt.core.config import SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import split_of
from deltakwt.train import augment
from deltakwt.train.cache import Cache

SILENT = -1  # in place of a row: noise drawn when the clip is asked for
FEWEST = 5  # training clips of a word
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """The clips of one split, by label."""

    labels: tuple[str, ...]
    wanted: Rows  # rows of the cache
    wanted_label: Rows  # their labels
    others: Rows  # rows of all other words: the unknown

    def epoch(
        self, seed: int, epoch: int, unknown_share: float = 0.1, silence_share: float = 0.1
    ) -> tuple[Rows, Rows]:
        """Rows (SILENT for silence) and labels of one epoch, shuffled.

        The shares are of the wanted clips; which unknown words are heard changes every epoch.
        """
        rng = np.random.default_rng((seed, epoch))
        rows, labels = [self.wanted], [self.wanted_label]
        if UNKNOWN in self.labels and len(self.others):
            count = min(int(np.ceil(unknown_share * len(self.wanted))), len(self.others))
            rows.append(rng.choice(self.others, count, replace=False))
            labels.append(np.full(count, self.labels.index(UNKNOWN)))
        if SILENCE in self.labels:
            count = int(np.ceil(silence_share * len(self.wanted)))
            rows.append(np.full(count, SILENT))
            labels.append(np.full(count, self.labels.index(SILENCE)))
        order = rng.permutation(sum(map(len, rows)))
        return np.concatenate(rows)[order], np.concatenate(labels)[order]


def make_task(cache: Cache, labels: Sequence[str], split: str) -> Task:
    """The task on one split ("train", "val" or "test") of the cache."""
    number = {label: index for index, label in enumerate(labels)}
    inside = np.array([split_of(file) == split for file in cache.files])
    label = np.array([number.get(file.split("/")[0], -1) for file in cache.files])
    wanted = np.flatnonzero(inside & (label >= 0))
    others = np.flatnonzero(inside & (label < 0))
    return Task(tuple(labels), wanted, label[wanted], others)


def check(training: Task, validation: Task) -> None:
    """Stop before hours are spent on data that cannot teach."""
    for index, word in enumerate(training.labels):
        clips = int(np.sum(training.wanted_label == index))
        if word not in (SILENCE, UNKNOWN) and clips < FEWEST:
            raise DeltakwtError(
                f"word {word!r}: {clips} training clips, at least {FEWEST} are needed;"
                " record more, drop the word, or let --synth make some"
            )
    if UNKNOWN in training.labels and not len(training.others):
        raise DeltakwtError(
            f"no clips of other words, so {UNKNOWN} cannot be learned;"
            " add folders of other words or --synth"
        )
    if not len(validation.wanted):
        raise DeltakwtError(
            "no clip falls into the validation split (a tenth of the speakers); add more clips"
        )


def validation_clips(cache: Cache, task: Task, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Clips (n, 16000) and labels of a whole split, fixed by the seed; 10% unknown, 10% silence.

    Half of the silence is digital zero and half recorded noise at all volumes.
    """
    rows, labels = task.epoch(seed, 0)
    clips = cache.clips(rows)
    silent = torch.from_numpy(rows == SILENT).nonzero()[:, 0][::2]
    rng = torch.Generator().manual_seed(seed)
    if len(silent):
        noise = augment.noise_segments(cache.noises, len(silent), rng)
        clips[silent] = noise * 10 ** (-2 * torch.rand(len(silent), 1, generator=rng))
    return clips, torch.from_numpy(labels)
