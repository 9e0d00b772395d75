"""Clips from which the scales of the fixed-point engine are made: words and recorded noise."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from deltakwt.audio import Audio
from deltakwt.core.config import UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import (
    Clip,
    Failed,
    Manifest,
    batches,
    is_test_set,
    noise_clip,
    noise_recordings,
    split_of,
    word_clips,
)

CLIPS = 200
NOISE_SHARE = 0.1
PREFERRED_SPLITS = ("val", "train", "test")  # the first that has clips is used


def calibration_sounds(root: Path, count: int = CLIPS, seed: int = 0) -> Audio:
    """Return sounds (n, 16000) of a data folder: up to `count`, of all words, a tenth noise.

    The labels do not matter, so a model of other words can be calibrated with any speech. The clips
    are those of the validation split, if there is one.
    """
    paths = [path for paths in word_clips(root).values() for path in paths]
    by_split: dict[str, list[str]] = {split: [] for split in PREFERRED_SPLITS}
    for path in paths:
        by_split["test" if is_test_set(root) else split_of(path)].append(path)
    split = next(split for split in PREFERRED_SPLITS if by_split[split])
    dice = random.Random(seed)
    noise = _noise(root, round(count * NOISE_SHARE), dice)
    words = by_split[split]
    drawn = dice.sample(words, min(count - len(noise), len(words)))
    clips = [Clip(path, UNKNOWN) for path in sorted(drawn)] + noise
    failed: list[Failed] = []
    manifest = Manifest(root, split, "noise", seed, tuple(clips))
    sounds = [part for _, part in batches(manifest, 64, 2, failed.append)]
    if not sounds:
        raise DeltakwtError(f"{root}: none of its clips can be read; {failed[0][1]}")
    return np.concatenate(sounds)


def _noise(root: Path, count: int, dice: random.Random) -> list[Clip]:
    """Return seconds cut at random from the background recordings; none if there are none."""
    recordings = noise_recordings(root)
    return [noise_clip(path, dice) for path in recordings and dice.choices(recordings, k=count)]
