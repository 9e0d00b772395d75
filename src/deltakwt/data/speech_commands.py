"""Speech Commands: folder layouts, the split by speaker, the twelve-class rules, manifests.

There are two layouts: the full data set (v0.01, v0.02) has one folder per word and
`_background_noise_`; the official test sets have one folder per class, including `_silence_` and
`_unknown_`. The unknown words are drawn at random, so a draw is an explicit list of clips, a
*manifest*, that can be saved and read again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from deltakwt.audio import Audio, frames_of, read_clip, read_part
from deltakwt.core.config import CLIP_SAMPLES, LABELS, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import read_json, write_atomically, writing
from deltakwt.locks import signals_deferred

SPLITS = ("train", "val", "test")
SILENCES = ("zero", "noise")
NOISE_FOLDER = "_background_noise_"
EXTRA_PERCENT = 10  # clips of silence and of unknown words, each, relative to the keywords
MAX_MANIFEST_BYTES = 16 << 20


def speaker_of(name: str) -> str:
    """Return the speaker of a clip: its file name before `_nohash_`, or the whole file name."""
    return PurePosixPath(name).name.partition("_nohash_")[0]


def split_of(name: str) -> str:
    """Return the split of a clip, which depends on its speaker."""
    hashed = int(hashlib.sha1(speaker_of(name).encode(), usedforsecurity=False).hexdigest(), 16)
    percent = (hashed % 2**27) * (100.0 / (2**27 - 1))
    return "val" if percent < 10 else "test" if percent < 20 else "train"


@dataclass(frozen=True)
class Clip:
    """One second to classify. `path` is relative to the data folder; None is digital silence."""

    path: str | None
    label: str
    offset: int = 0  # first sample, for silence cut from a long noise recording


@dataclass(frozen=True)
class Manifest:
    """An explicit list of clips, and how it was drawn."""

    root: Path
    split: str
    silence: str
    seed: int
    clips: tuple[Clip, ...]

    def save(self, path: Path) -> None:
        """Write the manifest as JSON, with paths relative to the data folder."""
        document = {
            "format": 1,
            "split": self.split,
            "silence": self.silence,
            "seed": self.seed,
            "clips": [asdict(clip) for clip in self.clips],
        }
        with writing(path):
            write_atomically(path, (json.dumps(document, indent=0) + "\n").encode())


def load_manifest(path: Path, root: Path) -> Manifest:
    """Read a manifest for the data in `root`. Its paths must not lead out of `root`."""
    document = read_json(path, MAX_MANIFEST_BYTES)
    try:
        if document["format"] != 1:
            raise DeltakwtError(f"{path}: manifest format {document['format']!r} is not known")
        clips = tuple(Clip(c["path"], str(c["label"]), int(c["offset"])) for c in document["clips"])
        made = Manifest(
            root, str(document["split"]), str(document["silence"]), int(document["seed"]), clips
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DeltakwtError(f"{path}: not a manifest: {error!r}") from error
    for clip in clips:
        if clip.path is not None and not _inside(clip.path):
            raise DeltakwtError(f"{path}: {clip.path!r} leads out of the data folder")
    if not clips:
        raise DeltakwtError(f"{path}: lists no clips")
    return made


def _inside(path: Any) -> bool:
    if not isinstance(path, str):
        return False
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts


def is_test_set(root: Path) -> bool:
    """Return whether `root` has the layout of the official test sets."""
    return (root / UNKNOWN).is_dir() and (root / SILENCE).is_dir()


def is_word_folder(root: Path) -> bool:
    """Return whether `root` holds word folders rather than recordings of any length."""
    return is_test_set(root) or (root / NOISE_FOLDER).is_dir() or any(root.glob("*/*_nohash_*"))


def word_clips(root: Path) -> dict[str, list[str]]:
    """Return the sorted relative paths of the clips of every word folder in `root`."""
    if not root.is_dir():
        raise DeltakwtError(f"{root}: no such data folder; {_advice(root)}")
    words = {}
    for folder in sorted(root.iterdir()):
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        if not folder.name.startswith("_") or folder.name in (SILENCE, UNKNOWN):
            names = sorted(p.name for p in folder.iterdir() if p.suffix in (".wav", ".flac"))
            if names:
                words[folder.name] = [f"{folder.name}/{name}" for name in names]
    if not words:
        raise DeltakwtError(f"{root}: holds no clips (expected one folder of .wav files per word)")
    return words


def _advice(root: Path) -> str:
    """Return the command that makes the missing folder."""
    version = next((v for v in ("v0.01", "v0.02") if v in root.name), "v0.02")
    name = version if "commands" in root.name and "test" not in root.name else f"test-{version}"
    return f"get one with: deltakwt data get {name}"


def draw(
    root: Path,
    split: str = "test",
    silence: str = "zero",
    *,
    seed: int = 0,
    limit: int | None = None,
    labels: Sequence[str] = LABELS,
) -> Manifest:
    """Draw the clips of a split: the twelve classes, or other labels.

    `silence` is "zero" for digital silence, as in the paper, or "noise" for recorded noise. With
    `limit`, that many clips are drawn at random.
    """
    if split not in SPLITS or silence not in SILENCES:
        raise DeltakwtError(f"split must be one of {SPLITS}, silence one of {SILENCES}")
    words = word_clips(root)
    dice = random.Random(seed)
    if is_test_set(root):
        if split != "test":
            raise DeltakwtError(f"{root}: the official test set has no {split} split")
        clips = _test_set_clips(words, silence, labels)
    else:
        clips = _full_set_clips(root, words, split, silence, labels, dice)
    if not clips:
        raise DeltakwtError(f"{root}: has no {split} clip of the model's words")
    if limit is not None and limit < len(clips):
        clips = [clips[i] for i in sorted(dice.sample(range(len(clips)), limit))]
    return Manifest(root, split, silence, seed, tuple(clips))


def _test_set_clips(words: dict[str, list[str]], silence: str, labels: Sequence[str]) -> list[Clip]:
    return [
        Clip(None if label == SILENCE and silence == "zero" else path, label)
        for label in labels
        for path in words.get(label, [])
    ]


def _full_set_clips(
    root: Path,
    words: dict[str, list[str]],
    split: str,
    silence: str,
    labels: Sequence[str],
    dice: random.Random,
) -> list[Clip]:
    """Return all keyword clips, and 10% of their number of silence and of unknown, rounded up."""
    wanted = [
        Clip(path, label)
        for label in labels
        for path in words.get(label, [])
        if split_of(path) == split
    ]
    extra = -(-len(wanted) * EXTRA_PERCENT // 100)
    clips: list[Clip] = []
    if SILENCE in labels:
        clips += _silence_clips(root, silence, extra, dice)
    if UNKNOWN in labels:
        others = [
            path
            for word, paths in words.items()
            if word not in labels
            for path in paths
            if split_of(path) == split
        ]
        drawn = dice.sample(others, min(extra, len(others)))
        clips += [Clip(path, UNKNOWN) for path in sorted(drawn)]
    return clips + wanted


def _silence_clips(root: Path, silence: str, count: int, dice: random.Random) -> list[Clip]:
    if silence == "zero":
        return [Clip(None, SILENCE)] * count
    return noise_clips(root, count, dice, "use --silence zero")


def noise_clips(root: Path, count: int, dice: random.Random, advice: str) -> list[Clip]:
    """Return `count` seconds at random places of the background recordings, taken in turn.

    The error of a folder without recordings ends with `advice`.
    """
    recordings = noise_recordings(root)
    if not recordings:
        raise DeltakwtError(f"{root}: has no {NOISE_FOLDER}; {advice}")
    return [noise_clip(recordings[number % len(recordings)], dice) for number in range(count)]


def noise_clip(recording: Path, dice: random.Random) -> Clip:
    """Return one second at a random place of a background recording."""
    offset = dice.randrange(max(1, frames_of(recording) - CLIP_SAMPLES + 1))
    return Clip(f"{NOISE_FOLDER}/{recording.name}", SILENCE, offset)


def noise_recordings(root: Path) -> list[Path]:
    """Return the background recordings of a full data set, sorted by name."""
    return sorted((root / NOISE_FOLDER).glob("*.wav"))


def read(manifest: Manifest, clip: Clip) -> Audio:
    """Return the sound of one clip (16000,)."""
    if clip.path is None:
        return np.zeros(CLIP_SAMPLES, np.float32)
    path = manifest.root / clip.path
    if not clip.offset:
        return read_clip(path)
    cut = read_part(path, clip.offset, CLIP_SAMPLES)
    return np.pad(cut, (0, CLIP_SAMPLES - len(cut)))


Failed = tuple[str, str]  # file, reason


class _Batch:
    """Some clips that threads are reading. Its memory is taken at once, before any is read."""

    def __init__(self, manifest: Manifest, clips: Sequence[Clip], pool: ThreadPoolExecutor) -> None:
        self.clips = clips
        self._sounds = np.empty((len(clips), CLIP_SAMPLES), np.float32)
        with signals_deferred():
            self._reading = [
                pool.submit(self._read, manifest, clip, row)
                for clip, row in zip(clips, self._sounds, strict=True)
            ]

    @staticmethod
    def _read(manifest: Manifest, clip: Clip, row: Audio) -> str | None:
        """Read a clip into its row. Return the reason if it cannot be read."""
        try:
            row[:] = read(manifest, clip)
        except DeltakwtError as error:
            return str(error)
        return None

    def result(self, failed: Callable[[Failed], None]) -> tuple[list[Clip], Audio]:
        """Return the clips that could be read, and their sound."""
        reasons = [reading.result() for reading in self._reading]
        good = [number for number, reason in enumerate(reasons) if reason is None]
        for clip, reason in zip(self.clips, reasons, strict=True):
            if reason is not None:
                failed((str(clip.path), reason))
        sounds = self._sounds if len(good) == len(reasons) else self._sounds[good]
        return [self.clips[number] for number in good], sounds


def batches(
    manifest: Manifest, size: int, threads: int, failed: Callable[[Failed], None]
) -> Iterator[tuple[list[Clip], Audio]]:
    """Yield clips and their sound (n, 16000), decoded by `threads` threads one batch ahead.

    A clip that cannot be read is passed to `failed` and left out.
    """
    groups = [manifest.clips[i : i + size] for i in range(0, len(manifest.clips), size)]
    pool = ThreadPoolExecutor(threads)  # it survives missing memory better than in_threads
    try:
        ahead: _Batch | None = None
        for number, group in enumerate(groups):
            current = ahead or _Batch(manifest, group, pool)
            is_last = number + 1 == len(groups)
            ahead = None if is_last else _Batch(manifest, groups[number + 1], pool)
            good, sounds = current.result(failed)
            if good:
                yield good, sounds
    finally:
        with signals_deferred():
            pool.shutdown(cancel_futures=True)


def describe(root: Path) -> dict[str, Any]:
    """Return the layout of a data folder and its clips per word and per split."""
    words = word_clips(root)
    paths = [path for clips in words.values() for path in clips]
    test_set = is_test_set(root)
    splits = Counter("test" if test_set else split_of(path) for path in paths)
    return {
        "folder": str(root),
        "layout": "official test set" if test_set else "full data set",
        "clips": len(paths),
        "words": {word: len(clips) for word, clips in words.items()},
        "splits": {split: splits[split] for split in SPLITS if splits[split]},
        "noise_recordings": [path.name for path in noise_recordings(root)],
    }
