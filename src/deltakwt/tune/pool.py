"""Clips in memory: sound, group and target of each, features of each front end kept.

A pool is ordered so that every prefix is a stratified sample of the whole: a coarse look is the
first few hundred clips, a closer look some more, and no look needs another one's results again.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_blocks
from deltakwt.core.config import CLIP_SAMPLES, FEATURES, FRAMES, SILENCE, UNKNOWN
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, FrontEndSetting
from deltakwt.data.speech_commands import Clip, Failed, Manifest, batches
from deltakwt.tune.mix import GROUPS, Mix

FEATURE_BYTES = 1 << 30  # features of the front ends used last
MAX_RECORDED = 4_000  # seconds of recordings without labels
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3")
UNLABELLED = -1

Report = Callable[[float, float], None]
Features = NDArray[np.float32]  # (n, 98, 40)


@dataclass
class Pool:
    """n clips."""

    name: str  # what these clips are, for reports
    audio: NDArray[np.float32]  # (n, 16000)
    groups: NDArray[np.int64]  # (n,) index into GROUPS
    targets: NDArray[np.int64]  # (n,) index of the label, or UNLABELLED
    sources: list[str]  # (n,) speaker or recording: never on both sides of a split
    failed: list[Failed] = field(default_factory=list)
    _features: OrderedDict[FrontEndSetting, Features] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self.audio)

    @property
    def labelled(self) -> bool:
        return bool((self.targets != UNLABELLED).all())

    def window(self, count: int | None, turn: int = 0) -> NDArray[np.int64]:
        """Which `count` clips the turn-th look takes: the first ones, then others, round and round.

        Digital silence is in every look.
        """
        numbers = np.arange(len(self))
        if count is None or count >= len(self):
            return numbers
        silent = self.groups == GROUPS.index("zero")
        sounding = np.roll(numbers[~silent], -turn * count)
        return np.concatenate([numbers[silent], sounding])[:count]

    def weights(self, mix: Mix, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """(chosen,) weight of each clip, so that the groups weigh as the mix says; sums to one."""
        groups = self.groups[chosen]
        sizes = np.bincount(groups, minlength=len(GROUPS))
        missing = [g for i, g in enumerate(GROUPS) if mix.weights[i] and not sizes[i]]
        if missing:
            raise DeltakwtError(f"{self.name}: has no clips of group {missing[0]!r} of the mix")
        return np.asarray((np.array(mix.weights) / np.maximum(sizes, 1))[groups])

    def features(self, engine: Engine, front_end: FrontEndSetting = PLAIN) -> Features:
        """(n, 98, 40) of one front end, computed once."""
        if front_end not in self._features:
            made = np.empty((len(self), FRAMES, FEATURES), np.float32)

            def one(number: int) -> None:
                made[number] = engine.features(self.audio[number], front_end)

            with ThreadPoolExecutor(os.cpu_count()) as workers:
                list(workers.map(one, range(len(self))))
            while self._features and (len(self._features) + 1) * made.nbytes > FEATURE_BYTES:
                self._features.popitem(last=False)
            self._features[front_end] = made
        self._features.move_to_end(front_end)
        return self._features[front_end]

    def counts(self) -> dict[str, int]:
        """Clips of each group that has any."""
        sizes = np.bincount(self.groups, minlength=len(GROUPS))
        return {group: int(n) for group, n in zip(GROUPS, sizes, strict=True) if n}

    def fingerprint(self) -> str:
        """Of the sound itself: the same clips in the same order, whatever they are called."""
        digest = hashlib.sha256(self.groups.tobytes() + self.targets.tobytes())
        digest.update(self.audio[:, ::97].tobytes())
        return digest.hexdigest()[:16]

    def take(self, chosen: Sequence[int] | NDArray[np.int64], name: str) -> Pool:
        """A part of it."""
        return Pool(
            name,
            self.audio[chosen],
            self.groups[chosen],
            self.targets[chosen],
            [self.sources[i] for i in chosen],
        )

    def hold_out(self, share: float, seed: int) -> tuple[Pool, Pool]:
        """Clips to search with and clips to report on, of different speakers or recordings."""
        sources = sorted(set(self.sources))
        if len(sources) < 2:
            raise DeltakwtError(
                f"{self.name}: one recording cannot be held out from itself; give --test"
            )
        random.Random(seed).shuffle(sources)
        held = set(sources[: max(1, round(share * len(sources)))])
        inside = np.array([source in held for source in self.sources])
        return (
            self.take(np.flatnonzero(~inside), self.name),
            self.take(np.flatnonzero(inside), f"{self.name}, {share:.0%} of speakers held out"),
        )

    def stratified(self, seed: int) -> Pool:
        """The same clips in an order whose every prefix has each group and label in proportion."""
        dice = np.random.default_rng(seed)
        place = np.empty(len(self))
        for group, target in sorted(set(zip(self.groups, self.targets, strict=True))):
            members = np.flatnonzero((self.groups == group) & (self.targets == target))
            ranks = (dice.permutation(len(members)) + dice.random()) / len(members)
            # The one zero clip belongs to every prefix.
            place[members] = -1.0 if GROUPS[group] == "zero" else ranks
        return self.take(np.argsort(place, kind="stable"), self.name)


def load_pool(
    manifest: Manifest, labels: Sequence[str], name: str, report: Report | None = None
) -> Pool:
    """Read the clips of a manifest. A clip that cannot be read is left out and listed."""
    failed: list[Failed] = []
    clips: list[Clip] = []
    sounds: list[NDArray[np.float32]] = []
    for good, audio in batches(manifest, 256, os.cpu_count() or 1, failed.append):
        clips += good
        sounds.append(audio)
        if report:
            report(len(clips), len(manifest.clips))
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
    if clip.label == SILENCE:
        return "zero" if clip.path is None else "noise"
    return "unknown" if clip.label == UNKNOWN else "words"


def source_of(clip: Clip) -> str:
    """The speaker, as Speech Commands names its files; else the file."""
    if clip.path is None:
        return SILENCE
    name = Path(clip.path).name
    speaker = name.partition("_nohash_")[0]
    return speaker if speaker != name else f"{clip.path}@{clip.offset}"


def load_recordings(root: Path, seed: int) -> Pool:
    """Sound files of any length without labels, below `root`, as seconds of group `words`."""
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in SOUND_SUFFIXES)
    if not files:
        raise DeltakwtError(f"{root}: holds no sound files ({', '.join(SOUND_SUFFIXES)})")
    random.Random(seed).shuffle(files)
    seconds: list[NDArray[np.float32]] = []
    sources: list[str] = []
    failed: list[Failed] = []
    for path in files:
        try:
            cuts = _seconds(path, MAX_RECORDED - len(seconds))
        except DeltakwtError as error:
            failed.append((str(path), str(error)))
            continue
        seconds += cuts
        name = path.name.partition("_nohash_")[0]
        sources += [name] * len(cuts)
        if len(seconds) >= MAX_RECORDED:
            break
    if not seconds:
        raise DeltakwtError(f"{root}: no recording could be read: {failed[0][1]}")
    count = len(seconds)
    groups = np.full(count, GROUPS.index("words"))
    targets = np.full(count, UNLABELLED)
    return Pool(root.name, np.stack(seconds), groups, targets, sources, failed)


def _seconds(path: Path, most: int) -> list[NDArray[np.float32]]:
    """Consecutive seconds of a file; a rest of less than half a second is dropped."""
    cuts: list[NDArray[np.float32]] = []
    held = np.zeros(0, np.float32)
    for block in read_blocks(path):
        held = np.concatenate((held, block))
        while len(held) >= CLIP_SAMPLES and len(cuts) < most:
            cuts.append(held[:CLIP_SAMPLES].copy())
            held = held[CLIP_SAMPLES:]
        if len(cuts) >= most:
            return cuts
    if not cuts or len(held) > CLIP_SAMPLES // 2:
        cuts.append(np.pad(held, (0, CLIP_SAMPLES - len(held))))
    return cuts
