"""Decoded audio: the sound files of a folder, end to end, in one memory-mapped int16 file.

Files are decoded once, streamed, so memory stays bounded for recordings of any length. A stopped
decoding continues after the last file that was written. `recordings.Recordings` reads the result.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from deltakwt.audio import SOUND_SUFFIXES, Audio, duration, read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.recordings import Int16, Recordings, join, speakers
from deltakwt.data.speech_commands import NOISE_FOLDER, word_clips

FORMAT = 2
LONGEST_CLIP = 60 * SAMPLE_RATE  # only the first minute of a word's recording is searched
FLUSH_EVERY = 100  # files

Progress = Callable[[int, int], None]  # files done, files in total
Read = Callable[[Path], Iterable[Audio]]


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
        raise DeltakwtError(f"{folder}: holds no sound files ({', '.join(SOUND_SUFFIXES)})")
    return names


def _sound_files(folder: Path) -> list[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.as_posix()
        for path in found
        if path.suffix.lower() in SOUND_SUFFIXES
        and not any(part.startswith(".") for part in path.parts)
    )


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
            out.flush()  # the journal must not list audio that is not written yet
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
