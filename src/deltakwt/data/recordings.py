"""Recordings: decoded sound files as one long sound, and their split by speaker."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE

VALIDATION_PERCENT = 8

Int16 = NDArray[np.int16]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Recordings:
    """Decoded sound files. A *place* is a sample's position in all of them end to end."""

    stores: tuple[Int16, ...] = ()  # each (samples,), memory-mapped
    files: tuple[str, ...] = ()  # path of each file, relative to its folder
    store: Places = field(default_factory=lambda: np.zeros(0, np.int64))  # (n,) index in `stores`
    start: Places = field(default_factory=lambda: np.zeros(0, np.int64))  # (n,) first sample
    length: Places = field(default_factory=lambda: np.zeros(0, np.int64))  # (n,) samples
    skipped: dict[str, str] = field(default_factory=dict)  # unreadable files and the reasons

    @cached_property
    def ends(self) -> Places:
        """(n,) place after the last sample of each file."""
        return np.cumsum(self.length)

    @property
    def samples(self) -> int:
        """Return the number of samples in all files."""
        return int(self.ends[-1]) if len(self.files) else 0

    @property
    def hours(self) -> float:
        return self.samples / SAMPLE_RATE / 3600

    def cut(self, place: int, count: int) -> Int16:
        """Return `count` samples from `place` on; the files follow each other in a circle."""
        out = np.empty(count, np.int16)
        place %= self.samples
        file = int(np.searchsorted(self.ends, place, "right"))
        offset, filled = int(place - self.ends[file] + self.length[file]), 0
        while filled < count:
            part = self._samples(file, offset, count - filled)
            out[filled : filled + len(part)] = part
            filled += len(part)
            file, offset = (file + 1) % len(self.files), 0
        return out

    def place_in_file(self, file: int, part: float, count: int) -> int:
        """Return a start in one file, at `part` (0 to 1) of it, from which `count` samples fit."""
        spare = max(0, int(self.length[file]) - count)
        return int(self.ends[file] - self.length[file]) + int(part * spare)

    def cut_inside(self, place: int, count: int) -> Int16:
        """Return `count` samples of the file at `place`, from there on if they fit into it.

        Otherwise the cut begins earlier; a file that is too short is repeated.
        """
        file = int(np.searchsorted(self.ends, place, "right"))
        spare = int(self.length[file]) - count
        if spare <= 0:
            return np.resize(self._samples(file, 0, count), count)
        offset = int(place - self.ends[file] + self.length[file])
        return self._samples(file, min(offset, spare), count)

    def clips(self, rows: Places) -> Int16:
        """(n, 16000): the first second of each of these files; zero for a negative row."""
        out = np.zeros((len(rows), CLIP_SAMPLES), np.int16)
        for clip, row in zip(out, rows, strict=True):
            if row >= 0:
                part = self._samples(int(row), 0, CLIP_SAMPLES)
                clip[: len(part)] = part
        return out

    def subset(self, keep: NDArray[np.bool_]) -> Recordings:
        """Return the recordings whose entry in `keep` (n,) is true."""
        files = tuple(np.array(self.files, object)[keep])
        return Recordings(
            self.stores, files, self.store[keep], self.start[keep], self.length[keep], self.skipped
        )

    def _samples(self, file: int, offset: int, most: int) -> Int16:
        begin = int(self.start[file]) + offset
        end = min(begin + most, int(self.start[file] + self.length[file]))
        return self.stores[int(self.store[file])][begin:end]


def join(parts: Sequence[Recordings]) -> Recordings:
    """Return all recordings of `parts`, in their order."""
    if not parts:
        return Recordings()
    before = np.cumsum([0, *(len(part.stores) for part in parts)])
    return Recordings(
        tuple(store for part in parts for store in part.stores),
        tuple(file for part in parts for file in part.files),
        np.concatenate([part.store + first for part, first in zip(parts, before, strict=False)]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.length for part in parts]),
        {file: why for part in parts for file, why in part.skipped.items()},
    )


def split_speech(speech: Recordings) -> tuple[Recordings, Recordings]:
    """Return the recordings for training and for validation, with no speaker in both.

    With very few speakers one side may be empty; then the files are split instead.
    """
    groups = speakers(speech.files)
    held = np.array([is_validation(group) for group in groups])
    if held.all() or not held.any():
        return split_files(speech)
    return speech.subset(~held), speech.subset(held)


def split_files(sounds: Recordings) -> tuple[Recordings, Recordings]:
    """Return the recordings for training and for validation, split file by file."""
    held = np.array([is_validation(file) for file in sounds.files])
    if held.all():
        held[:] = False
    return sounds.subset(~held), sounds.subset(held)


def is_validation(name: str) -> bool:
    """Return whether this speaker or file is one of the 8% that are kept for validation."""
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return int(digest, 16) % 100 < VALIDATION_PERCENT


def speakers(files: Sequence[str]) -> list[str]:
    """Return the speaker of each file: its folder, or its name up to the first "_".

    Folders that all files share do not count. Of nested folders the outermost is the speaker.
    """
    paths = [PurePosixPath(file).parts for file in files]
    shared = 0
    while all(len(path) > shared + 1 for path in paths) and len({p[shared] for p in paths}) == 1:
        shared += 1
    return [
        path[shared] if len(path) > shared + 1 else PurePosixPath(path[-1]).stem.split("_")[0]
        for path in paths
    ]
