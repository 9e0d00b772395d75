"""Audio decoded once: every clip of a data folder as int16 rows of one memory-mapped file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt.audio import read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import NOISE_FOLDER, word_clips

FORMAT = 1
LONGEST = 60 * SAMPLE_RATE  # of a recording the first minute is looked at
Int16 = NDArray[np.int16]
Told = Callable[[int, int], None]  # files done, files in all


@dataclass(frozen=True)
class Cache:
    """The clips and background noises of one or more folders of word folders."""

    parts: tuple[Int16, ...]  # each (n, 16000), memory-mapped
    files: tuple[str, ...]  # "word/name.wav" of every row, over all parts
    noises: tuple[Tensor, ...]  # each (samples,) in [-1, 1], at least a second
    skipped: dict[str, str]  # files that could not be read, and why

    def clips(self, rows: NDArray[np.int64]) -> Tensor:
        """(n, 16000) float in [-1, 1]; a negative row is digital silence."""
        out = np.zeros((len(rows), CLIP_SAMPLES), np.float32)
        start = 0
        for part in self.parts:
            here = np.flatnonzero((rows >= start) & (rows < start + len(part)))
            out[here] = part[rows[here] - start]
            start += len(part)
        return torch.from_numpy(out).div_(32768)


def open_cache(
    folders: Sequence[Path], home: Path, told: Told = lambda done, of: None, build: bool = True
) -> Cache:
    """The decoded clips of `folders`, kept below `home` from one run to the next.

    Without `build`, what another process has built is opened.
    """
    parts: list[Int16] = []
    files: list[str] = []
    noises: list[Tensor] = []
    skipped: dict[str, str] = {}
    for folder in folders:
        names = [name for clips in word_clips(folder).values() for name in clips]
        stamp = _fingerprint(folder, names)
        place = home / stamp[:16]
        index = _read_index(place / "index.json")
        if build and (index is None or index.get("stamp") != stamp):
            index = _build(folder, names, place, stamp, told)
        if index is None:
            raise DeltakwtError(f"{place}: the audio cache was not built")
        shape = (len(index["files"]), CLIP_SAMPLES)
        parts.append(np.memmap(place / "clips.i16", np.int16, "r", shape=shape))
        files += index["files"]
        skipped |= {f"{folder}/{name}": why for name, why in index["skipped"].items()}
        noises += _noises(folder)
    return Cache(tuple(parts), tuple(files), tuple(noises), skipped)


def _fingerprint(folder: Path, names: list[str]) -> str:
    """Changes when a file comes, goes or is recorded anew."""
    digest = hashlib.sha256(f"{FORMAT}\0{folder.resolve()}".encode())
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


def _build(folder: Path, names: list[str], place: Path, stamp: str, told: Told) -> dict[str, Any]:
    """Decode every file; one that cannot be read is noted and left out."""
    kept: list[str] = []
    skipped: dict[str, str] = {}
    part = place / "clips.part"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as out:
            for done, name in enumerate(names, 1):
                try:
                    clip = loudest_second(samples(folder / name))
                except DeltakwtError as error:
                    skipped[name] = str(error)
                else:
                    out.write(_int16(clip).tobytes())
                    kept.append(name)
                if done % 200 == 0 or done == len(names):
                    told(done, len(names))
        os.replace(part, place / "clips.i16")
        index = {"format": FORMAT, "stamp": stamp, "files": kept, "skipped": skipped}
        (place / "index.json").write_text(json.dumps(index), encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise DeltakwtError(f"{place}: cannot write the audio cache: {error.strerror}") from error
    return index


def samples(path: Path) -> NDArray[np.float32]:
    """Up to a minute of a file, 16 kHz mono in [-1, 1]."""
    blocks, length = [], 0
    for block in read_blocks(path):
        blocks.append(block)
        length += len(block)
        if length >= LONGEST:
            break
    if not length:
        raise DeltakwtError(f"{path}: holds no samples")
    return np.clip(np.concatenate(blocks)[:LONGEST], -1, 1)


def _int16(clip: NDArray[np.float32]) -> Int16:
    return np.clip(np.rint(clip * 32768), -32768, 32767).astype(np.int16)


def loudest_second(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """(16000,): a short sound padded at its end, a long one cut where it is loudest."""
    if len(sound) <= CLIP_SAMPLES:
        return np.pad(sound, (0, CLIP_SAMPLES - len(sound)))
    energy = np.concatenate([[0.0], np.cumsum(sound.astype(np.float64) ** 2)])
    start = int(np.argmax(energy[CLIP_SAMPLES:] - energy[:-CLIP_SAMPLES]))
    return sound[start : start + CLIP_SAMPLES]


def _noises(folder: Path) -> list[Tensor]:
    sounds = [
        torch.from_numpy(samples(path)) for path in sorted((folder / NOISE_FOLDER).glob("*.wav"))
    ]
    return [sound for sound in sounds if len(sound) >= CLIP_SAMPLES]
