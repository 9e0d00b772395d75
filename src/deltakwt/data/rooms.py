"""Impulse responses of rooms: read from sound files, simulated, or decaying noise."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_blocks
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import find_recordings
from deltakwt.files import write_atomically, writing

LENGTH = 12_800  # samples kept of a response: 0.8 s
BEFORE_PEAK = 16  # samples kept before the direct sound
SIMULATED, NOISE = "simulated", "noise"
COUNT = 400  # simulated rooms

Responses = NDArray[np.float32]  # (n, LENGTH), each of energy 1, direct sound first


def open_rooms(name: str, home: Path, seed: int = 0) -> tuple[Responses, dict[str, str]]:
    """Return the responses that `--rooms` names, and the files that could not be read.

    `name` is a folder of sound files, "simulated" or "noise". Simulated rooms are kept in `home`.
    """
    if name == NOISE:
        return decaying_noise(COUNT, seed), {}
    if name != SIMULATED:
        return read_rooms(Path(name))
    path = home / f"rooms-{COUNT}-{seed}.npy"
    if path.exists():
        made: Responses = np.load(path, allow_pickle=False)
        return made, {}
    made = simulate_rooms(COUNT, seed)
    with writing(path):
        home.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.save(content, made, allow_pickle=False)
        write_atomically(path, content.getvalue())
    return made, {}


def read_rooms(folder: Path) -> tuple[Responses, dict[str, str]]:
    """Return every sound file of `folder` as an impulse response, and what could not be read."""
    responses, skipped = [], {}
    for name in find_recordings(folder):
        try:
            sound = np.concatenate(list(read_blocks(folder / name)))
        except DeltakwtError as error:
            skipped[f"{folder}/{name}"] = str(error)
            continue
        if np.any(sound):
            responses.append(normalise(sound))
        else:
            skipped[f"{folder}/{name}"] = "holds only zeros"
    if not responses:
        raise DeltakwtError(f"{folder}: no impulse response could be read")
    return np.stack(responses), skipped


def decaying_noise(count: int, seed: int) -> Responses:
    """Return direct sound and noise that decays by 60 dB in 0.1 to 0.6 s: the simplest room."""
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(0.1, 0.6, (count, 1))
    echo = rng.standard_normal((count, LENGTH)) * 10 ** (-3 * _time() / seconds)
    echo *= rng.uniform(0.0, 0.5, (count, 1)) / np.sqrt((echo**2).sum(axis=1, keepdims=True))
    echo[:, 0] = 1.0
    return _unit_energy(echo)


def simulate_rooms(count: int, seed: int) -> Responses:
    """Return simulated shoebox rooms: 60 dB decay in 0.15 to 0.9 s, talker 0.3 to 5 m away."""
    try:
        pyroomacoustics = import_module("pyroomacoustics")  # optional, and without types
    except ImportError:
        raise DeltakwtError(
            "--rooms simulated needs pyroomacoustics; install it with: pip install pyroomacoustics"
            " (or use --rooms noise, or give a folder of impulse responses)"
        ) from None
    rng = np.random.default_rng(seed)
    responses: list[NDArray[np.float32]] = []
    while len(responses) < count:
        response = _shoebox(pyroomacoustics, rng)
        if response is not None:
            responses.append(response)
    return np.stack(responses)


def _shoebox(library: Any, rng: np.random.Generator) -> NDArray[np.float32] | None:
    """Return one room's response, or None if the drawn values make no room."""
    size = rng.uniform([2.5, 2.5, 2.3], [9.0, 8.0, 3.6])
    decay = float(rng.uniform(0.15, 0.9))
    microphone = rng.uniform([0.4, 0.4, 0.5], size - [0.4, 0.4, 0.5])
    direction = rng.standard_normal(3) * [1.0, 1.0, 0.3]
    talker = microphone + rng.uniform(0.3, 5.0) * direction / np.linalg.norm(direction)
    if np.any(talker < 0.3) or np.any(talker > size - 0.3):
        return None
    try:
        absorption, order = library.inverse_sabine(decay, size)
    except ValueError:  # no absorption gives so short a decay in so large a room
        return None
    order = min(order, 12)
    room = library.ShoeBox(
        size, fs=SAMPLE_RATE, materials=library.Material(absorption), max_order=order
    )
    room.add_source(talker)
    room.add_microphone(microphone)
    room.compute_rir()
    early = np.zeros(LENGTH)
    sound = _aligned(np.asarray(room.rir[0][0]))
    early[: len(sound)] = sound
    # Echoes of a limited order end too early: noise of the right decay continues them.
    end = min(len(sound) - 1, int(SAMPLE_RATE * order * 0.25 * size.min() / 343))
    tail = rng.standard_normal(LENGTH) * 10 ** (-3 * _time() / decay)
    near = slice(max(0, end - 800), end + 1)
    tail *= _level(early[near]) / max(_level(tail[near]), 1e-12)
    share = np.clip((np.arange(LENGTH) - end) / 800, 0, 1)
    return normalise(early * (1 - share) + tail * share)


def normalise(sound: NDArray[Any]) -> NDArray[np.float32]:
    """Return (LENGTH,): the response from shortly before its direct sound on, with energy 1."""
    response = np.zeros(LENGTH)
    cut = _aligned(np.asarray(sound, np.float64))
    response[: len(cut)] = cut
    row: NDArray[np.float32] = _unit_energy(response[None])[0]
    return row


def _aligned(sound: NDArray[np.float64]) -> NDArray[np.float64]:
    start = max(0, int(np.argmax(np.abs(sound))) - BEFORE_PEAK)
    return sound[start : start + LENGTH]


def _unit_energy(responses: NDArray[np.float64]) -> Responses:
    energy = (responses**2).sum(axis=1, keepdims=True)
    scaled: Responses = (responses / np.sqrt(energy)).astype(np.float32)
    return scaled


def _level(sound: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(sound**2)))


def _time() -> NDArray[np.float64]:
    return np.arange(LENGTH) / SAMPLE_RATE
