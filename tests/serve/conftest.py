"""A model, and sound with known words, for the servers and the asyncio interface."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from numpy.typing import NDArray

from deltakwt.core.model import Model, load

RATE = 16_000
WORDS = ["yes", "left", "stop"]


@pytest.fixture(scope="session")
def model(trained: str) -> Model:
    return load(trained)


@pytest.fixture(scope="session")
def speech() -> NDArray[np.float32]:
    """WORDS in a quiet room: they begin at 1 s, 3 s and 5 s of 8 s."""
    sound = np.random.default_rng(5).normal(0, 1e-3, 8 * RATE).astype(np.float32)
    for number, word in enumerate(WORDS):
        clip, rate = soundfile.read(CLIPS / f"{word}.flac", dtype="float32")
        assert rate == RATE
        start = RATE * (1 + 2 * number)
        sound[start : start + len(clip)] += clip[:RATE]
    return sound


@pytest.fixture(scope="session")
def pcm(speech: NDArray[np.float32]) -> bytes:
    """The same as 16-bit PCM."""
    return bytes((speech * 32767).astype("<i2").tobytes())


@pytest.fixture(scope="session")
def wav(speech: NDArray[np.float32]) -> bytes:
    """The same as a WAV file."""
    file = io.BytesIO()
    soundfile.write(file, speech, 16_000, format="WAV", subtype="PCM_16")
    return file.getvalue()
