"""Decoded audio: the sound files of a folder, end to end, in one memory-mapped int16 file.

Files are decoded once, streamed, so memory stays bounded for recordings of any length. A stopped
decoding continues after the last file that was written. `Recordings` reads the result.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio, duration, read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import NOISE_FOLDER, word_clips

FORMAT = 2
LONGEST_CLIP = 60 * SAMPLE_RATE  # only the first minute of a word's recording is searched
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".opus", ".aif", ".aiff", ".w64", ".au")
FLUSH_EVERY = 100  # files
VALIDATION_PERCENT = 8

Int16 = NDArray[np.int16]
Places = NDArray[np.int64]
Progress = Callable[[int, int], None]  # files done, files in total
Read = Callable[[Path], Iterable[Audio]]


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

    def cut_file(self, file: int, part: float, count: int) -> Int16:
        """Return `count` samples of one file at `part` (0 to 1) of it; a short file is repeated."""
        spare = int(self.length[file]) - count
        if spare <= 0:
            return np.resize(self._samples(file, 0, count), count)
        return self._samples(file, int(part * spare), count)

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


def open_clips(
    folders: Sequence[Path],
    home: Path,
    progress: Progress = lambda done, total: None,
    build: bool = True,
) -> Recordings:
    """Return the clips of folders of word folders: one second each, the loudest of its file.

    The decoded audio is kept below `home`. Without `build`, only audio that another process has
    decoded is opened.
    """
    parts = []
    for folder in folders:
        names = [name for clips in word_clips(folder).values() for name in clips]
        parts.append(_open(folder, names, home, "clips", _loudest, progress, build))
    return join(parts)


def open_recordings(
    folder: Path,
    home: Path,
    progress: Progress = lambda done, total: None,
    build: bool = True,
) -> Recordings:
    """Return all sound files in and below `folder`, whole. See `open_clips` for the rest."""
    names = find_recordings(folder)
    return _open(folder, names, home, "recordings", read_blocks, progress, build)


def open_noises(folders: Sequence[Path], home: Path, build: bool = True) -> list[Recordings]:
    """Return the background noises of those data folders that have some."""
    noises = [folder / NOISE_FOLDER for folder in folders]
    return [
        open_recordings(folder, home, build=build)
        for folder in noises
        if folder.is_dir() and _sound_files(folder)
    ]


def find_recordings(folder: Path) -> list[str]:
    """Return the sorted relative paths of all sound files in and below `folder`."""
    if not folder.is_dir():
        raise DeltakwtError(f"{folder}: no such folder; give a folder of sound files")
    names = _sound_files(folder)
    if not names:
        raise DeltakwtError(f"{folder}: holds no sound files ({', '.join(SUFFIXES)})")
    return names


def _sound_files(folder: Path) -> list[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.as_posix()
        for path in found
        if path.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in path.parts)
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


def describe_recordings(folder: Path) -> dict[str, Any]:
    """Return the number of files, hours and speakers of a folder, from the headers of the files."""
    hours, skipped, kept = 0.0, {}, []
    for name in find_recordings(folder):
        seconds = duration(folder / name)
        if seconds is None:
            skipped[name] = "not readable as sound"
        else:
            kept.append(name)
            hours += seconds / 3600
    return {
        "folder": str(folder),
        "files": len(kept),
        "hours": hours,
        "speakers": len(set(speakers(kept))),
        "skipped": skipped,
    }


def _open(
    folder: Path,
    names: list[str],
    home: Path,
    kind: str,
    read: Read,
    progress: Progress,
    build: bool,
) -> Recordings:
    stamp = _fingerprint(folder, names, kind)
    place = home / stamp[:16]
    index = _read_index(place / "index.json")
    if build and (index is None or index.get("stamp") != stamp):
        index = _decode(folder, names, place, stamp, read, progress)
    if index is None:
        raise DeltakwtError(f"{place}: the audio cache was not built")
    entries = [entry for entry in index["files"] if entry[1]]
    length = np.array([entry[1] for entry in entries], np.int64)
    total = int(length.sum())
    store = np.memmap(place / "audio.i16", np.int16, "r", shape=(total,)) if total else _NOTHING
    start = np.cumsum(length) - length
    skipped = {f"{folder}/{name}": why for name, samples, why in index["files"] if not samples}
    files = tuple(entry[0] for entry in entries)
    return Recordings((store,), files, np.zeros(len(files), np.int64), start, length, skipped)


_NOTHING = np.zeros(0, np.int16)


def _fingerprint(folder: Path, names: list[str], kind: str) -> str:
    """Return a hash that changes when a file is added, removed or replaced."""
    digest = hashlib.sha256(f"{FORMAT}\0{kind}\0{folder.resolve()}".encode())
    for name in names:
        status = (folder / name).stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _read_index(path: Path) -> dict[str, Any] | None:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return index if isinstance(index, dict) else None


def _decode(
    folder: Path, names: list[str], place: Path, stamp: str, read: Read, progress: Progress
) -> dict[str, Any]:
    """Decode every file. The journal lists what is done, so that a stopped run can continue."""
    part, journal = place / "audio.part", place / "journal.jsonl"
    try:
        place.mkdir(parents=True, exist_ok=True)
        done = _finished(part, journal)
        with (
            open(part, "r+b" if done else "w+b") as out,
            open(journal, "a" if done else "w") as log,
        ):
            out.seek(2 * sum(entry[1] for entry in done))
            out.truncate()
            for entry in _decoded(folder, names[len(done) :], out, log, read):
                done.append(entry)
                if len(done) % FLUSH_EVERY == 0 or len(done) == len(names):
                    progress(len(done), len(names))
        os.replace(part, place / "audio.i16")
        index = {"format": FORMAT, "stamp": stamp, "files": done}
        (place / "index.json").write_text(json.dumps(index), encoding="utf-8")
        journal.unlink()
    except OSError as error:
        raise DeltakwtError(f"{place}: cannot write the audio cache: {error.strerror}") from error
    return index


def _decoded(
    folder: Path, names: list[str], out: BinaryIO, log: TextIO, read: Read
) -> Iterator[list[Any]]:
    """Append each file's samples to `out` and yield [name, samples, why it was skipped]."""
    waiting: list[list[Any]] = []
    for number, name in enumerate(names, 1):
        start, why = out.tell(), ""
        try:
            for block in read(folder / name):
                out.write(to_int16(block).tobytes())
        except DeltakwtError as error:
            why = str(error)
            out.seek(start)
            out.truncate()
        entry = [name, (out.tell() - start) // 2, why]
        waiting.append(entry)
        if len(waiting) == FLUSH_EVERY or number == len(names):
            out.flush()  # the journal must never be ahead of the audio
            log.writelines(json.dumps(line) + "\n" for line in waiting)
            log.flush()
            waiting = []
        yield entry


def _finished(part: Path, journal: Path) -> list[list[Any]]:
    """Return the journal of a stopped run, or nothing if its audio is not all there."""
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
        done = [json.loads(line) for line in lines]
        whole = part.stat().st_size >= 2 * sum(entry[1] for entry in done)
    except (OSError, ValueError, TypeError, IndexError):
        return []
    return done if whole else []


def to_int16(sound: Audio) -> Int16:
    """Return samples in [-1, 1] as 16-bit integers, clipped."""
    return np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16)


def _loudest(path: Path) -> Iterator[Audio]:
    yield loudest_second(read_start(path))


def read_start(path: Path) -> Audio:
    """Return up to a minute of a file, 16 kHz mono in [-1, 1]."""
    blocks, length = [], 0
    for block in read_blocks(path):
        blocks.append(block)
        length += len(block)
        if length >= LONGEST_CLIP:
            break
    if not length:
        raise DeltakwtError(f"{path}: holds no samples")
    return np.clip(np.concatenate(blocks)[:LONGEST_CLIP], -1, 1)


def loudest_second(sound: Audio) -> Audio:
    """(16000,): a short sound is padded at its end, a long one cut where it is loudest."""
    if len(sound) <= CLIP_SAMPLES:
        return np.pad(sound, (0, CLIP_SAMPLES - len(sound)))
    energy = np.concatenate([[0.0], np.cumsum(sound.astype(np.float64) ** 2)])
    start = int(np.argmax(energy[CLIP_SAMPLES:] - energy[:-CLIP_SAMPLES]))
    return sound[start : start + CLIP_SAMPLES]
