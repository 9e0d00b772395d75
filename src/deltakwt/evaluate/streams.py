"""Test streams: keywords and other words at known times on background noise.

A stream is planned from a seed and rendered block by block, so hours need no memory. The noise
changes every 20 to 60 s (recording, place in it, level). The level of a word is set by the
signal-to-noise ratio: the root mean square of the clip where it is spoken, over that of the noise.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile

from deltakwt.audio import Audio, read_blocks, read_clip
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.speech_commands import NOISE_FOLDER, is_test_set, split_of, word_clips
from deltakwt.files import write_atomically

BLOCK = 10 * SAMPLE_RATE  # samples rendered at once
SEGMENT = (20.0, 60.0)  # seconds of one noise
FADE = SAMPLE_RATE // 10  # noises fade into each other
EDGE = SAMPLE_RATE // 50  # clips fade in and out, so that their own noise makes no click
FRAME = SAMPLE_RATE // 100
ACTIVE = 0.01  # share of the loudest frame's power from which a frame counts as speech


@dataclass(frozen=True)
class Scenario:
    """The parameters of a stream."""

    hours: float = 1.0
    seed: int = 1
    snr: float = 10.0  # dB
    gap: tuple[float, float] = (5.0, 15.0)  # seconds from one word to the next, drawn uniformly
    others: float = 0.1  # share of words that are not keywords
    noise: tuple[float, float] = (-35.0, -25.0)  # dB of full scale, drawn for each segment

    def __post_init__(self) -> None:
        if not 0 < self.hours <= 1000:
            raise DeltakwtError(f"--hours {self.hours}: must be above 0 and at most 1000")
        if not 1.0 <= self.gap[0] <= self.gap[1]:
            raise DeltakwtError(f"--gap {self.gap}: must be at least 1 s, the shorter first")
        if not 0 <= self.others <= 1:
            raise DeltakwtError(f"--others {self.others}: must be between 0 and 1")

    @property
    def samples(self) -> int:
        return round(self.hours * 3600 * SAMPLE_RATE)


@dataclass(frozen=True)
class Spoken:
    """One word of the stream."""

    label: str  # "_unknown_" if it is not one of the model's words
    path: Path
    at: int  # sample at which the clip begins
    gain: float
    start: float  # seconds: where the speech in the clip begins,
    end: float  # and ends


@dataclass(frozen=True)
class Segment:
    """A stretch of one noise recording."""

    at: int
    length: int
    noise: int
    offset: int
    gain: float
    rms: float  # after the gain


@dataclass(frozen=True)
class StreamMaterial:
    """The clips of each label, and the noise recordings."""

    clips: dict[str, list[Path]]
    noises: list[Audio]


def find_material(
    data: Path, noise: Path | None, labels: Sequence[str], split: str
) -> StreamMaterial:
    """Return the clips of a Speech Commands folder, and its noises or those of another folder."""
    clips: dict[str, list[Path]] = {}
    every = is_test_set(data)
    for word, paths in word_clips(data).items():
        label = word if word in labels else UNKNOWN
        if label != SILENCE:
            chosen = [data / path for path in paths if every or split_of(path) == split]
            clips.setdefault(label, []).extend(chosen)
    clips = {label: paths for label, paths in clips.items() if paths}
    if not any(not label.startswith("_") for label in clips):
        raise DeltakwtError(f"{data}: has no {split} clip of the model's words")
    folder = noise or data / NOISE_FOLDER
    files = sorted(folder.glob("*.wav")) + sorted(folder.glob("*.flac"))
    if not files:
        raise DeltakwtError(f"{folder}: has no noise recordings; give a folder with --noise")
    return StreamMaterial(clips, [_read_noise(file) for file in files])


def _read_noise(path: Path) -> Audio:
    sound = np.concatenate(list(read_blocks(path)))
    if len(sound) < 2 * SAMPLE_RATE:
        raise DeltakwtError(f"{path}: a noise recording must last at least 2 s")
    return sound


@lru_cache(maxsize=20_000)
def activity(path: Path) -> tuple[float, int, int]:
    """Return the RMS of the speech in a clip, and the samples where it begins and ends."""
    power = np.square(read_clip(path)).reshape(-1, FRAME).mean(axis=1)  # (100,)
    loud = np.flatnonzero(power >= ACTIVE * power.max())
    first, last = int(loud[0]), int(loud[-1]) + 1
    rms = float(np.sqrt(power[loud].mean()))
    return max(rms, 1e-5), first * FRAME, last * FRAME


class PlannedStream:
    """A planned stream: `truth` lists its words, `blocks` renders it."""

    def __init__(self, material: StreamMaterial, scenario: Scenario) -> None:
        self.scenario, self._noises = scenario, material.noises
        rng = np.random.default_rng(scenario.seed)
        self._segments = self._plan_noise(rng)
        self.truth = self._plan_words(material.clips, rng)

    @property
    def digest(self) -> str:
        """A hash of the plan: equal for equal material, scenario and seed."""
        plan = [(word.label, word.path.name, word.at, round(word.gain, 6)) for word in self.truth]
        return hashlib.sha256(repr((plan, self._segments)).encode()).hexdigest()[:16]

    def _plan_noise(self, rng: np.random.Generator) -> list[Segment]:
        segments, at = [], 0
        while at < self.scenario.samples:
            noise = int(rng.integers(len(self._noises)))
            wanted = round(rng.uniform(*SEGMENT) * SAMPLE_RATE)
            length = min(wanted, len(self._noises[noise]))
            offset = int(rng.integers(len(self._noises[noise]) - length + 1))
            rms = 10 ** (rng.uniform(*self.scenario.noise) / 20)
            own = np.sqrt(np.square(self._noises[noise][offset : offset + length]).mean())
            segments.append(Segment(at, length, noise, offset, float(rms / max(own, 1e-6)), rms))
            at += length - FADE
        return segments

    def _plan_words(self, clips: dict[str, list[Path]], rng: np.random.Generator) -> list[Spoken]:
        """Draw keywords with equal probability, and use each clip as rarely as possible."""
        words = sorted(label for label in clips if not label.startswith("_"))
        decks: dict[str, list[Path]] = {}
        starts = [segment.at for segment in self._segments]
        truth: list[Spoken] = []
        at = round(rng.uniform(*self.scenario.gap) * SAMPLE_RATE)
        while at + 2 * CLIP_SAMPLES < self.scenario.samples:
            other = UNKNOWN in clips and rng.random() < self.scenario.others
            label = UNKNOWN if other else words[int(rng.integers(len(words)))]
            if not decks.get(label):
                decks[label] = [clips[label][i] for i in rng.permutation(len(clips[label]))]
            path = decks[label].pop()
            rms, begin, end = activity(path)
            noise = self._segments[int(np.searchsorted(starts, at, side="right")) - 1].rms
            gain = noise * 10 ** (self.scenario.snr / 20) / rms
            span = (at + begin) / SAMPLE_RATE, (at + end) / SAMPLE_RATE
            truth.append(Spoken(label, path, at, float(gain), *span))
            at += round(rng.uniform(*self.scenario.gap) * SAMPLE_RATE)
        return truth

    def blocks(self) -> Iterator[Audio]:
        """Yield the sound, 10 s at a time."""
        first_segment = first_word = 0
        for start in range(0, self.scenario.samples, BLOCK):
            block = np.zeros(min(BLOCK, self.scenario.samples - start), np.float32)
            end = start + len(block)
            while self._segments[first_segment].at + self._segments[first_segment].length <= start:
                first_segment += 1
            for segment in self._segments[first_segment:]:
                if segment.at >= end:
                    break
                _add(block, start, segment.at, self._render(segment, start, end))
            for index in range(first_word, len(self.truth)):
                word = self.truth[index]
                if word.at >= end:
                    break
                if word.at + CLIP_SAMPLES > start:
                    _add(block, start, word.at, _faded(read_clip(word.path), EDGE) * word.gain)
                else:
                    first_word = index + 1
            yield np.clip(block, -1, 1)

    def _render(self, segment: Segment, start: int, end: int) -> Audio:
        noise = self._noises[segment.noise][segment.offset : segment.offset + segment.length]
        return _faded(noise, FADE) * np.float32(segment.gain)


def _faded(sound: Audio, samples: int) -> Audio:
    """Return a copy with linear ramps at both ends."""
    ramp = np.linspace(0, 1, samples, dtype=np.float32)
    faded = sound.copy()
    faded[:samples] *= ramp
    faded[-samples:] *= ramp[::-1]
    return faded


def _add(block: Audio, start: int, at: int, sound: Audio) -> None:
    """Add a sound that begins at sample `at` to a block that begins at sample `start`."""
    first, last = max(at, start), min(at + len(sound), start + len(block))
    if first < last:
        block[first - start : last - start] += sound[first - at : last - at]


def save_stream(stream: PlannedStream, stem: Path) -> None:
    """Write the stream to STEM.flac and its words to STEM.json, for other programs."""
    truth = [
        {"label": w.label, "start": w.start, "end": w.end, "clip": "/".join(w.path.parts[-2:])}
        for w in stream.truth
    ]
    unfinished = stem.with_name(f".{stem.name}.{os.getpid()}.flac")
    try:
        with soundfile.SoundFile(unfinished, "w", SAMPLE_RATE, 1, "PCM_16") as file:
            for block in stream.blocks():
                file.write(block)
        write_atomically(Path(f"{stem}.json"), (json.dumps(truth, indent=0) + "\n").encode())
        unfinished.replace(f"{stem}.flac")
    except (OSError, soundfile.LibsndfileError) as error:
        reason = error if isinstance(error, OSError) else _why_not(unfinished) or error
        raise DeltakwtError(f"{stem}: cannot be written: {reason}") from reason
    finally:
        with suppress(OSError):  # it is not there, or the folder cannot be written
            unfinished.unlink()


def _why_not(path: Path) -> OSError | None:
    """Return why nothing can be written to a file. libsndfile only says that it failed."""
    try:
        with path.open("ab") as file:
            file.write(bytes(1 << 16))
    except OSError as error:
        return error
    return None
