"""Which clips a search sees: words, unknown words, digital silence, recorded noise.

Unlike an evaluation set, a pool may hold more unknown words than a tenth, because groups are
weighted; and a single all-zero clip, because all of them are the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from deltakwt.core.config import CLIP_SAMPLES, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import (
    NOISE_FOLDER,
    Clip,
    Manifest,
    is_test_set,
    split_of,
    word_clips,
)
from deltakwt.tune.mix import GROUPS

NOISE_CLIPS = 120  # cut from the background recordings
UNKNOWN_PER_WORD = 0.35  # at most this many unknown clips for one of a keyword

Drawn = dict[str, list[Clip]]  # group -> clips


def draw_pool(
    root: Path, split: str, labels: Sequence[str], groups: Sequence[str], seed: int
) -> Manifest:
    """The clips of a split, group by group in the order of GROUPS."""
    words = word_clips(root)
    dice = random.Random(seed)
    if is_test_set(root):
        if split != "test":
            raise DeltakwtError(
                f"{root}: is a test set; --data chooses thresholds and needs a {split} split"
            )
        drawn = _of_test_set(words, labels)
    else:
        drawn = _of_full_set(root, words, split, labels, groups, dice)
    drawn["zero"] = [Clip(None, SILENCE)]
    for group in groups:
        if not drawn.get(group):
            raise DeltakwtError(f"{root}: has no {split} clips of group {group!r} of the mix")
    clips = [clip for group in GROUPS if group in groups for clip in drawn[group]]
    return Manifest(root, split, "noise" if "noise" in groups else "zero", seed, tuple(clips))


def has_split(root: Path, split: str) -> bool:
    """Whether a data folder holds any clip of a split."""
    if is_test_set(root):
        return split == "test"
    return any(split_of(path) == split for paths in word_clips(root).values() for path in paths)


def _of_test_set(words: dict[str, list[str]], labels: Sequence[str]) -> Drawn:
    keywords = [label for label in labels if label not in (SILENCE, UNKNOWN)]
    return {
        "words": [Clip(path, word) for word in keywords for path in words.get(word, [])],
        "unknown": [Clip(path, UNKNOWN) for path in words.get(UNKNOWN, [])],
        "noise": [Clip(path, SILENCE) for path in words.get(SILENCE, [])],
    }


def _of_full_set(
    root: Path,
    words: dict[str, list[str]],
    split: str,
    labels: Sequence[str],
    groups: Sequence[str],
    dice: random.Random,
) -> Drawn:
    paths = {
        word: [path for path in clips if split_of(path) == split] for word, clips in words.items()
    }
    wanted = [Clip(path, word) for word in labels for path in paths.get(word, [])]
    others = [path for word, clips in paths.items() if word not in labels for path in clips]
    count = min(len(others), round(UNKNOWN_PER_WORD * len(wanted)))
    return {
        "words": wanted,
        "unknown": [Clip(path, UNKNOWN) for path in sorted(dice.sample(others, count))],
        "noise": _noise_cuts(root, dice) if "noise" in groups else [],
    }


def _noise_cuts(root: Path, dice: random.Random) -> list[Clip]:
    noises = sorted((root / NOISE_FOLDER).glob("*.wav"))
    if not noises:
        raise DeltakwtError(f"{root}: has no {NOISE_FOLDER}; leave noise out of the mix")
    lengths = [_samples(noise) for noise in noises]
    cuts = []
    for number in range(NOISE_CLIPS):
        noise, length = noises[number % len(noises)], lengths[number % len(noises)]
        offset = dice.randrange(max(1, length - CLIP_SAMPLES + 1))
        cuts.append(Clip(f"{NOISE_FOLDER}/{noise.name}", SILENCE, offset))
    return cuts


def _samples(path: Path) -> int:
    import soundfile

    try:
        return int(soundfile.info(str(path)).frames)
    except soundfile.LibsndfileError:
        raise DeltakwtError(f"{path}: not readable as sound") from None
