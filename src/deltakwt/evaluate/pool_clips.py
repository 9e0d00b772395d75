"""Reading the clips of a pool: words, unknown words, silence, noise, and augmented clips.

Unlike an evaluation set, a pool may hold more unknown words than a tenth, because the mix weighs
the groups. It holds digital silence once, because all such clips are equal.

The augmented groups are made from the spoken clips, so that a setting that is accurate on clean
clips and inaccurate on a telephone is recognised:

- `telephone`: the band of a telephone, 300 to 3400 Hz;
- `noisy`: recorded background noise, 10 dB below the spoken part of the clip;
- `shifted`: the sound 300 ms earlier or later, filled up with zeros.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import find_recordings
from deltakwt.data.conditions import SHIFT_SAMPLES, Sounds, noisy, shifted, telephone
from deltakwt.data.speech_commands import (
    Clip,
    Failed,
    Manifest,
    batches,
    is_test_set,
    noise_clips,
    read,
    speaker_of,
    split_of,
    word_clips,
)
from deltakwt.evaluate.pool import (
    AUGMENTED_GROUPS,
    GROUPS,
    RECORDED_GROUPS,
    UNLABELLED,
    Pool,
    Progress,
)

NOISE_CLIPS = 120  # cut from the background recordings
UNKNOWN_PER_WORD = 0.35  # unknown clips per keyword clip, at most
AUGMENTED_CLIPS = 1_000  # of each augmented group, at most
MAX_RECORDED_SECONDS = 4_000  # of recordings without labels


def draw_pool(
    root: Path, split: str, labels: Sequence[str], groups: Sequence[str], seed: int
) -> Manifest:
    """Return the recorded clips of a split, group by group in the order of GROUPS."""
    words = word_clips(root)
    rng = random.Random(seed)
    if is_test_set(root):
        if split != "test":
            raise DeltakwtError(
                f"{root}: is a test set; --data chooses thresholds and needs a {split} split"
            )
        drawn = _of_test_set(words, labels)
    else:
        drawn = _of_full_set(root, words, split, labels, groups, rng)
    drawn["zero"] = [Clip(None, SILENCE)]
    for group in groups:
        if group in RECORDED_GROUPS and not drawn.get(group):
            raise DeltakwtError(f"{root}: has no {split} clips of group {group!r} of the mix")
    wanted = {*groups, "words", "unknown"} if set(groups) & set(AUGMENTED_GROUPS) else {*groups}
    clips = [clip for group in RECORDED_GROUPS if group in wanted for clip in drawn[group]]
    return Manifest(root, split, "noise" if "noise" in groups else "zero", seed, tuple(clips))


def has_split(root: Path, split: str) -> bool:
    """Return whether a data folder holds any clip of a split."""
    if is_test_set(root):
        return split == "test"
    return any(split_of(path) == split for paths in word_clips(root).values() for path in paths)


def _of_test_set(words: dict[str, list[str]], labels: Sequence[str]) -> dict[str, list[Clip]]:
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
    rng: random.Random,
) -> dict[str, list[Clip]]:
    paths = {
        word: [path for path in clips if split_of(path) == split] for word, clips in words.items()
    }
    wanted = [Clip(path, word) for word in labels for path in paths.get(word, [])]
    others = [path for word, clips in paths.items() if word not in labels for path in clips]
    count = min(len(others), round(UNKNOWN_PER_WORD * len(wanted)))
    return {
        "words": wanted,
        "unknown": [Clip(path, UNKNOWN) for path in sorted(rng.sample(others, count))],
        "noise": noise_cuts(root, NOISE_CLIPS, rng) if "noise" in groups else [],
    }


def noise_cuts(root: Path, count: int, rng: random.Random) -> list[Clip]:
    """Return `count` seconds of noise: from the background recordings, or silence clips."""
    if is_test_set(root):
        cuts = [Clip(path, SILENCE) for path in word_clips(root).get(SILENCE, [])]
        if not cuts:
            raise DeltakwtError(f"{root}: has no clips in {SILENCE}; leave noisy out of the mix")
        return [cuts[number % len(cuts)] for number in range(count)]
    return noise_clips(root, count, rng, "leave noise and noisy out of the mix")


def load_pool(
    manifest: Manifest,
    labels: Sequence[str],
    name: str,
    groups: Sequence[str] = RECORDED_GROUPS,
    progress: Progress | None = None,
) -> Pool:
    """Read the clips of a manifest and make the augmented groups among `groups` from them.

    A clip that cannot be read is left out and listed in `failed`.
    """
    pool = _load_recorded(manifest, labels, name, progress)
    augmented = [group for group in AUGMENTED_GROUPS if group in groups]
    if not augmented:
        return pool
    kept = np.flatnonzero(np.isin(pool.groups, [GROUPS.index(g) for g in groups]))
    result = pool.take(kept, name)
    result.failed = pool.failed
    for group in augmented:
        result = result.joined(augmented_pool(pool, group, manifest))
    return result


def _load_recorded(
    manifest: Manifest, labels: Sequence[str], name: str, progress: Progress | None
) -> Pool:
    failed: list[Failed] = []
    clips: list[Clip] = []
    sounds: list[Sounds] = []
    for good, audio in batches(manifest, 256, os.cpu_count() or 1, failed.append):
        clips += good
        sounds.append(audio)
        if progress:
            progress(len(clips), len(manifest.clips))
    if not clips:
        raise DeltakwtError(f"{manifest.root}: no clip could be read: {failed[0][1]}")
    index = {label: number for number, label in enumerate(labels)}
    missing = {clip.label for clip in clips} - set(index)
    if missing:
        raise DeltakwtError(f"{manifest.root}: the model has no label {min(missing)!r}")
    return Pool(
        name,
        np.concatenate(sounds),
        np.array([GROUPS.index(group_of(clip)) for clip in clips]),
        np.array([index[clip.label] for clip in clips]),
        [source_of(clip) for clip in clips],
        failed,
    )


def group_of(clip: Clip) -> str:
    """Return the recorded group of a clip."""
    if clip.label == SILENCE:
        return "zero" if clip.path is None else "noise"
    return "unknown" if clip.label == UNKNOWN else "words"


def source_of(clip: Clip) -> str:
    """Return the speaker, if the file is named as in Speech Commands, or else the file."""
    if clip.path is None:
        return SILENCE
    speaker = speaker_of(clip.path)
    return speaker if speaker != Path(clip.path).name else f"{clip.path}@{clip.offset}"


def augmented_pool(pool: Pool, group: str, manifest: Manifest) -> Pool:
    """Return an augmented group of at most AUGMENTED_CLIPS of the spoken clips of a pool."""
    spoken = np.flatnonzero(np.isin(pool.groups, [GROUPS.index("words"), GROUPS.index("unknown")]))
    rng = np.random.default_rng([manifest.seed, GROUPS.index(group)])
    chosen = np.sort(rng.permutation(spoken)[:AUGMENTED_CLIPS])
    made = pool.take(chosen, pool.name)
    made.groups = np.full(len(made), GROUPS.index(group))
    if group == "telephone":
        made.audio = telephone(made.audio)
    elif group == "shifted":
        made.audio = shifted(made.audio, rng.choice([-SHIFT_SAMPLES, SHIFT_SAMPLES], len(made)))
    else:
        cuts = noise_cuts(manifest.root, NOISE_CLIPS, random.Random(manifest.seed))
        noise = np.stack([read(manifest, cut) for cut in cuts])
        made.audio = noisy(made.audio, noise[rng.integers(len(noise), size=len(made))])
    return made


def load_recordings(root: Path, seed: int) -> Pool:
    """Read sound files of any length below `root` as unlabelled seconds of group `words`."""
    files = [root / name for name in find_recordings(root)]
    random.Random(seed).shuffle(files)
    seconds: list[NDArray[np.float32]] = []
    sources: list[str] = []
    failed: list[Failed] = []
    for path in files:
        try:
            cuts = _seconds(path, MAX_RECORDED_SECONDS - len(seconds))
        except DeltakwtError as error:
            failed.append((str(path), str(error)))
            continue
        seconds += cuts
        sources += [speaker_of(path.name)] * len(cuts)
        if len(seconds) >= MAX_RECORDED_SECONDS:
            break
    if not seconds:
        raise DeltakwtError(f"{root}: no recording could be read: {failed[0][1]}")
    count = len(seconds)
    groups = np.full(count, GROUPS.index("words"))
    targets = np.full(count, UNLABELLED)
    return Pool(root.name, np.stack(seconds), groups, targets, sources, failed)


def _seconds(path: Path, most: int) -> list[NDArray[np.float32]]:
    """Return consecutive seconds of a file; a rest of less than half a second is dropped."""
    cuts: list[NDArray[np.float32]] = []
    rest = np.zeros(0, np.float32)
    for block in read_blocks(path):
        rest = np.concatenate((rest, block))
        while len(rest) >= CLIP_SAMPLES and len(cuts) < most:
            cuts.append(rest[:CLIP_SAMPLES].copy())
            rest = rest[CLIP_SAMPLES:]
        if len(cuts) >= most:
            return cuts
    if not cuts or len(rest) > CLIP_SAMPLES // 2:
        cuts.append(np.pad(rest, (0, CLIP_SAMPLES - len(rest))))
    return cuts
