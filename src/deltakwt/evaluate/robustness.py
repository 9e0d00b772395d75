"""Accuracy on spoken clips under worse conditions: noise, other talkers, a room, a telephone.

Only spoken clips (keywords and unknown words) are used. The background comes from folders of the
user: `sounds` for environmental sound, `speech` for other talkers. A condition whose folder is
missing is left out. A word that is moved by 300 ms may lose a part at the edge of the clip, and is
then no longer the word: the rows "whole" count only the words that stay inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SILENCE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting
from deltakwt.data import conditions
from deltakwt.data.cache import find_recordings
from deltakwt.data.conditions import Sounds
from deltakwt.data.speech_commands import Manifest, batches

TALKERS = 5  # voices in the background of "several talkers"
BACKGROUND_CUTS = 500  # different seconds of background, at most
SECONDS_PER_FILE = 20  # only the start of a recording is read

Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Condition:
    """Clips under one condition, and the ones that count."""

    name: str
    sounds: Sounds  # (n, 16000)
    counted: NDArray[np.bool_]  # (n,)


@dataclass(frozen=True)
class Robustness:
    """The accuracy of each setting under each condition."""

    clips: dict[str, int]  # condition -> number of clips that count
    accuracy: dict[str, dict[str, float]]  # condition -> setting -> accuracy
    failed: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "conditions": [
                {"condition": name, "clips": self.clips[name], "accuracy": by_setting}
                for name, by_setting in self.accuracy.items()
            ],
            "failed": self.failed,
        }


def robustness(
    model: Model,
    manifest: Manifest,
    settings: Sequence[Setting],
    *,
    sounds: Path | None = None,
    speech: Path | None = None,
    threads: int = 0,
    progress: Progress = lambda done, total: None,
) -> Robustness:
    """Return the accuracy of every setting on the spoken clips of a manifest."""
    failed: list[str] = []
    labels, clips = _spoken(model, manifest, failed)
    made = list(_conditions(clips, manifest.seed, sounds, speech, failed))
    counts: dict[str, int] = {}
    accuracy: dict[str, dict[str, float]] = {}
    for number, condition in enumerate(made):
        counted = condition.counted
        counts[condition.name] = int(counted.sum())
        accuracy[condition.name] = {}
        for setting in settings:
            logits = model.engine.batch(condition.sounds, setting, threads).logits
            right = logits.argmax(axis=1) == labels
            accuracy[condition.name][str(setting)] = float(right[counted].mean())
        progress(number + 1, len(made))
    return Robustness(counts, accuracy, failed)


def _spoken(
    model: Model, manifest: Manifest, failed: list[str]
) -> tuple[NDArray[np.int64], Sounds]:
    """Return the labels (n,) and the sound (n, 16000) of the spoken clips."""
    index = {label: number for number, label in enumerate(model.labels)}
    spoken = tuple(clip for clip in manifest.clips if clip.label != SILENCE)
    wanted = Manifest(manifest.root, manifest.split, manifest.silence, manifest.seed, spoken)
    labels: list[int] = []
    sounds: list[Sounds] = []
    for good, audio in batches(wanted, 256, 1, lambda one: failed.append(one[1])):
        labels += [index[clip.label] for clip in good]
        sounds.append(audio)
    if not labels:
        raise DeltakwtError(f"{manifest.root}: no spoken clip could be read")
    return np.array(labels), np.concatenate(sounds)


def _conditions(
    clips: Sounds, seed: int, sounds: Path | None, speech: Path | None, failed: list[str]
) -> Iterator[Condition]:
    """Yield the clips under every condition for which there is material."""
    everyone = np.ones(len(clips), bool)
    yield Condition("clean", clips, everyone)
    if sounds is not None:
        noise = _background(sounds, len(clips), seed, failed)
        for snr in (20, 10, 5, 0):
            mixed = conditions.noisy(clips, noise, snr)
            yield Condition(f"sounds, {snr} dB", mixed, everyone)
    if speech is not None:
        voices = [_background(speech, len(clips), seed + n, failed) for n in range(TALKERS)]
        babble = _sum_of_equal_power(voices)
        for snr in (10, 5):
            mixed = conditions.noisy(clips, babble, snr)
            yield Condition(f"{TALKERS} talkers, {snr} dB", mixed, everyone)
        mixed = conditions.noisy(clips, voices[0], 10)
        yield Condition("1 talker, 10 dB", mixed, everyone)
    room = f"room, {conditions.ROOM_DISTANCE:g} m"
    yield Condition(room, conditions.in_large_room(clips, seed), everyone)
    yield Condition("telephone", conditions.telephone(clips), everyone)
    for name, offset in (("early", -conditions.SHIFT_SAMPLES), ("late", conditions.SHIFT_SAMPLES)):
        moved = conditions.shifted(clips, np.full(len(clips), offset))
        inside = conditions.stays_inside(clips, offset)
        if inside.any():
            yield Condition(f"300 ms {name}, whole", moved, inside)
        yield Condition(f"300 ms {name}, all", moved, everyone)


def _background(folder: Path, count: int, seed: int, failed: list[str]) -> Sounds:
    """Return `count` seconds of sound from the recordings of a folder, none of it silent."""
    rng = np.random.default_rng(seed)
    names = find_recordings(folder)
    cuts: list[NDArray[np.float32]] = []
    for position in rng.permutation(len(names)):
        if len(cuts) == min(count, BACKGROUND_CUTS):
            break
        try:
            sound = _start_of(folder / names[position])
        except DeltakwtError as error:
            failed.append(str(error))
            continue
        if len(sound) < CLIP_SAMPLES:
            sound = np.pad(sound, (0, CLIP_SAMPLES - len(sound)))
        at = int(rng.integers(len(sound) - CLIP_SAMPLES + 1))
        cut = sound[at : at + CLIP_SAMPLES]
        if np.abs(cut).max() > 1e-3:
            cuts.append(cut)
    if not cuts:
        raise DeltakwtError(f"{folder}: no recording has a second of sound")
    return np.stack(cuts)[rng.integers(len(cuts), size=count)]


def _start_of(path: Path) -> NDArray[np.float32]:
    """Return the first SECONDS_PER_FILE seconds of a recording."""
    parts: list[NDArray[np.float32]] = []
    for block in read_blocks(path):
        parts.append(block)
        if sum(map(len, parts)) >= SECONDS_PER_FILE * CLIP_SAMPLES:
            break
    return np.concatenate(parts)[: SECONDS_PER_FILE * CLIP_SAMPLES]


def _sum_of_equal_power(voices: Sequence[Sounds]) -> Sounds:
    """Return the sum (n, 16000) of the voices, each scaled to the same power."""
    total = np.zeros_like(voices[0])
    for voice in voices:
        power = np.square(voice, dtype=np.float64).mean(axis=1, keepdims=True)
        total += (0.05 * voice / np.sqrt(np.maximum(power, 1e-12))).astype(np.float32)
    return total
