"""Audio decoded once: every clip of a data folder as int16 rows of one memory-mapped file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from deltakwt.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.errors import DeltakwtError

FORMAT = 1
NOISE_FOLDER = "_background_noise_"
Int16 = NDArray[np.int16]


@dataclass(frozen=True)
class Cache:
    """The clips of a folder of word folders, and its background noises."""

    audio: Int16  # (n, 16000), memory-mapped
    files: list[str]  # "word/name.wav", sorted
    noises: list[Int16]  # each (samples,)
    skipped: dict[str, str]  # files that could not be read, and why


def open_cache(
    data: Path, folder: Path, progress: Callable[[int, int], None] = lambda done, of: None
) -> Cache:
    """The cache of `data` kept in `folder`, built now unless the same files are in it already."""
    files = _wave_files(data)
    if not files:
        raise DeltakwtError(f"{data}: no sound files in word folders; expected {data}/<word>/*.wav")
    stamp = _fingerprint(data, files)
    index = _read_index(folder / "index.json")
    if index is None or index["stamp"] != stamp:
        index = _build(data, files, folder, stamp, progress)
    audio = np.memmap(
        folder / "clips.i16", np.int16, "r", shape=(len(index["files"]), CLIP_SAMPLES)
    )
    return Cache(audio, index["files"], _noises(data), index["skipped"])


def _wave_files(data: Path) -> list[str]:
    if not data.is_dir():
        raise DeltakwtError(f"{data}: no such folder; give a folder of word folders")
    words = sorted(w.name for w in data.iterdir() if w.is_dir() and w.name[0] not in "_.")
    return [
        f"{word}/{entry.name}"
        for word in words
        for entry in sorted(os.scandir(data / word), key=lambda e: e.name)
        if entry.name.lower().endswith((".wav", ".flac", ".ogg"))
    ]


def _fingerprint(data: Path, files: list[str]) -> str:
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for name in files:
        digest.update(f"{name}\0{(data / name).stat().st_size}\0".encode())
    return digest.hexdigest()


def _read_index(path: Path) -> dict[str, object] | None:
    try:
        index = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return index if isinstance(index, dict) else None


def _build(
    data: Path, files: list[str], folder: Path, stamp: str, progress: Callable[[int, int], None]
) -> dict[str, object]:
    """Decode every file; one that cannot be read is noted and left out."""
    kept: list[str] = []
    skipped: dict[str, str] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "clips.part", "wb") as out:
            for done, name in enumerate(files):
                try:
                    clip = one_second(read_int16(data / name))
                except (soundfile.SoundFileError, ValueError) as error:
                    skipped[name] = str(error)
                    continue
                out.write(clip.tobytes())
                kept.append(name)
                if done % 500 == 0:
                    progress(done, len(files))
        os.replace(folder / "clips.part", folder / "clips.i16")
        index = {"format": FORMAT, "stamp": stamp, "files": kept, "skipped": skipped}
        (folder / "index.json").write_text(json.dumps(index))
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot write the audio cache: {error}") from error
    return index


def read_int16(path: Path) -> Int16:
    """One sound file as 16 kHz mono int16."""
    sound, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = sound.mean(axis=1)
    if rate != SAMPLE_RATE:
        mono = soxr.resample(mono, rate, SAMPLE_RATE)
    if not len(mono):
        raise ValueError("holds no samples")
    return np.clip(np.rint(mono * 32768), -32768, 32767).astype(np.int16)


def one_second(sound: Int16) -> Int16:
    """Exactly 16,000 samples: a short sound is padded at its end, a long one cut where loudest."""
    if len(sound) <= CLIP_SAMPLES:
        return np.pad(sound, (0, CLIP_SAMPLES - len(sound)))
    energy = np.concatenate([[0.0], np.cumsum(sound.astype(np.float64) ** 2)])
    start = int(np.argmax(energy[CLIP_SAMPLES:] - energy[:-CLIP_SAMPLES]))
    return sound[start : start + CLIP_SAMPLES]


def _noises(data: Path) -> list[Int16]:
    return [read_int16(path) for path in sorted((data / NOISE_FOLDER).glob("*.wav"))]
