"""Hours of sound per hour and core of `deltakwt spot --out`, for each kind of file.

    python benchmarks/archive.py --sound speech.flac --minutes 20

The sound is repeated up to the wanted length, stored once in each format, and searched by one
process as a worker of the search does it. Processor time counts, not time on the clock: decoding,
resampling and the model. "rate 44.1 kHz" adds the resampling.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

import deltakwt
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
FILES = 4


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sound", type=Path, required=True, help="Repeat this sound file.")
    parser.add_argument("--minutes", type=float, default=20.0, help="Search so much of it.")
    parser.add_argument("--model", default="kwt-1")
    parser.add_argument("--profile", help="Run with this profile. Default: the model's own.")
    options = parser.parse_args()
    model = deltakwt.load(options.model)
    if options.profile:
        model.setting = options.profile
    once = np.concatenate(list(read_blocks(options.sound)))
    sound = np.resize(once, int(options.minutes * 60 * 16_000 / FILES))
    print(f"{options.model}, {model.setting}, {FILES} files of {len(sound) / 16_000:.0f} s")
    print("| format | hours of sound per hour and core | core hours for 1000 hours |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (suffix, subtype, rate) in FORMATS.items():
            files = store(Path(folder), sound, suffix, subtype, rate)
            begun = time.process_time()
            rows = search_files(model, files)
            used = time.process_time() - begun
            assert not any(row["error"] for row in rows), rows
            speed = FILES * len(sound) / 16_000 / used
            print(f"| {name} | {speed:.0f} | {1000 / speed:.2f} |", flush=True)


def store(folder: Path, sound: np.ndarray, suffix: str, subtype: str, rate: int) -> list[str]:
    """Write the files of one format and return their names."""
    if rate != 16_000:
        import soxr

        sound = soxr.resample(sound, 16_000, rate)
    files = []
    for number in range(FILES):
        path = folder / f"{number}.{suffix}"
        kind = suffix.upper()
        with soundfile.SoundFile(path, "w", rate, 1, subtype, format=kind) as file:
            for start in range(0, len(sound), rate):  # long writes of Vorbis need much stack
                file.write(sound[start : start + rate])
        files.append(str(path))
    return files


if __name__ == "__main__":
    main()
