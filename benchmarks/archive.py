"""Hours of sound per hour and core of `deltakwt spot --out`, for each kind of file.

    python benchmarks/archive.py --sound LibriSpeech/test-clean --minutes 20

The sound is a file, or a folder whose files are read in the order of their names. It is repeated or
cut to the wanted length, stored as files of 15 seconds in each format, and searched by one process
as a worker of the search does it. Processor time counts, not time on the clock: opening and
decoding files, resampling, the model, the decision. "44.1 kHz" adds the resampling.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

import deltakwt
from deltakwt.archive.plan import find_files
from deltakwt.archive.shard import search_files
from deltakwt.audio import read_blocks

FORMATS = {
    "WAV": ("wav", "PCM_16", 16_000),
    "WAV, 44.1 kHz": ("wav", "PCM_16", 44_100),
    "FLAC": ("flac", "PCM_16", 16_000),
    "FLAC, 44.1 kHz": ("flac", "PCM_16", 44_100),
    "Ogg Vorbis": ("ogg", "VORBIS", 16_000),
    "Ogg Opus": ("ogg", "OPUS", 16_000),
    "MP3": ("mp3", "MPEG_LAYER_III", 16_000),
}
SECONDS = 15  # of one file


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sound", required=True, help="Search this sound file, or this folder.")
    parser.add_argument("--minutes", type=float, default=20.0, help="Search so much of it.")
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--profile", help="Run with this profile. Default: the model's own.")
    parser.add_argument("--arithmetic", help="float or fixed. Default: the model's own.")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    options = parser.parse_args()
    model = deltakwt.load(options.model, arithmetic=options.arithmetic)
    if options.profile:
        model.setting = options.profile
    sound = read_sound(options.sound, int(options.minutes * 60) * 16_000)
    how = f"{options.model}, {model.setting}, {model.arithmetic}"
    print(f"{how}: {len(sound) / 960_000:.1f} minutes in files of {SECONDS} s")
    print("| format | hours of sound per hour and core | core hours for 1000 hours |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.formats:
            files = store(Path(folder), sound, *FORMATS[name])
            search_files(model, files[:1])  # imports and caches
            begun = time.process_time()
            rows = search_files(model, files)
            used = time.process_time() - begun
            assert not any(row["error"] for row in rows), rows
            speed = len(sound) / 16_000 / used
            print(f"| {name} | {speed:.0f} | {1000 / speed:.2f} |", flush=True)


def read_sound(source: str, samples: int) -> np.ndarray:
    """Return so many samples of a file, or of the files below a folder, repeated if need be."""
    parts, length = [], 0
    for file in find_files([source]):
        for block in read_blocks(file):
            parts.append(block)
            length += len(block)
        if length >= samples:
            break
    return np.resize(np.concatenate(parts), samples)


def store(folder: Path, sound: np.ndarray, suffix: str, subtype: str, rate: int) -> list[str]:
    """Write the files of one format and return their names."""
    if rate != 16_000:
        import soxr

        sound = soxr.resample(sound, 16_000, rate)
    files = []
    for start in range(0, len(sound), SECONDS * rate):
        path = folder / f"{start}.{suffix}"
        part = sound[start : start + SECONDS * rate]
        with soundfile.SoundFile(path, "w", rate, 1, subtype, format=suffix.upper()) as file:
            for at in range(0, len(part), rate):  # long writes of Vorbis need much stack
                file.write(part[at : at + rate])
        files.append(str(path))
    return files


if __name__ == "__main__":
    main()
