"""Streams with known words, and the model that finds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech

from deltakwt.core.config import LABELS
from deltakwt.core.model import Model, load
from deltakwt.evaluate.streams import StreamMaterial, find_material

PROJECT = Path(__file__).parent.parent.parent
CLIPS = PROJECT / "examples" / "clips"
RATE = 16_000


@pytest.fixture(scope="session")
def model(trained: str) -> Model:
    """Return a trained model that is set to dense."""
    loaded = load(trained)
    loaded.setting = "dense"
    return loaded


@pytest.fixture(scope="session")
def make_speech() -> Callable[..., Speech]:
    """Make a stream of words, two seconds apart, with quiet noise."""

    def make(*words: str, noise: float = 1e-3) -> Speech:
        length = RATE * (2 + 2 * len(words))
        sound = np.random.default_rng(5).normal(0, noise, length).astype(np.float32)
        for number, word in enumerate(words):
            clip, rate = soundfile.read(CLIPS / f"{word}.flac", dtype="float32")
            assert rate == RATE
            start = RATE * (1 + 2 * number)
            sound[start : start + len(clip)] += clip[:RATE]
        return Speech(sound, {word: 1.0 + 2 * n for n, word in enumerate(words)})

    return make


@pytest.fixture(scope="session")
def speech(make_speech: Callable[..., Speech]) -> Speech:
    return make_speech("yes", "left", "stop")


@pytest.fixture(scope="module")
def material(full_set: Path) -> StreamMaterial:
    return find_material(full_set, None, LABELS, "val")
