"""Make the clips of `examples/clips` with espeak-ng: synthetic voices, so they are ours to give.

    python examples/make_clips.py [FOLDER]

Needs espeak-ng on the PATH. The same version of it makes the same clips.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import soundfile
import soxr

RATE = 16_000
CLIPS = {  # word: voice
    "yes": "en-us",
    "no": "en-us+f2",
    "up": "en-us+m3",
    "down": "en-gb",
    "left": "en-us",
    "right": "en-us",
    "on": "en-us+f2",
    "off": "en-us",
    "stop": "en-us+m3",
    "go": "en-gb",
    "marvin": "en-us",  # not one of the ten words
    "happy": "en-gb",  # nor this
}
# Words in one longer recording, and the second at which each begins.
SENTENCE = {"go": 0.6, "left": 2.0, "marvin": 3.4, "stop": 4.8, "yes": 6.2}
NOISE = 1e-3  # of the room: no recording is digitally silent between the words


def say(word: str, voice: str) -> np.ndarray:
    """(n,) float32: the word, without the silence around it, at half of full scale."""
    command = ["espeak-ng", "-v", voice, "-s", "140", "--stdout", word]
    wav = subprocess.run(command, check=True, capture_output=True).stdout
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="float32")
    samples = soxr.resample(samples, rate, RATE)
    (loud,) = np.nonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
    samples = samples[loud[0] : loud[-1] + 1]
    return samples * (0.5 / np.abs(samples).max())


def room(seconds: int) -> np.ndarray:
    """White noise, 54 dB below the words."""
    return np.random.default_rng(1).normal(0, NOISE, seconds * RATE).astype(np.float32)


def clip(word: str, voice: str) -> np.ndarray:
    """(16000,): the word in the middle of one second."""
    spoken = say(word, voice)[:RATE]
    second = room(1)
    start = (RATE - len(spoken)) // 2
    second[start : start + len(spoken)] += spoken
    return second


def sentence() -> np.ndarray:
    """Some of the words one after the other."""
    sound = room(8)
    for word, start in SENTENCE.items():
        spoken = say(word, CLIPS[word])
        first = round(start * RATE)
        sound[first : first + len(spoken)] += spoken
    return sound


def main() -> None:
    """Write all clips."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "clips")
    folder.mkdir(parents=True, exist_ok=True)
    for word, voice in CLIPS.items():
        soundfile.write(folder / f"{word}.flac", clip(word, voice), RATE)
    soundfile.write(folder / "sentence.flac", sentence(), RATE)
    soundfile.write(folder / "silence.flac", np.zeros(RATE, np.float32), RATE)


if __name__ == "__main__":
    main()
