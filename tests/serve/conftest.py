"""A model, and sound with known words, for the servers and the asyncio interface."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

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


@pytest.fixture
def wyoming_server(model: Model) -> Callable[..., Any]:
    """Starts a Wyoming server in this process, on a port that the system chooses."""
    from deltakwt.serve.hub import Hub
    from deltakwt.serve.limits import Limits
    from deltakwt.serve.wyoming import WyomingServer, serving

    @asynccontextmanager
    async def start(uri: str = "tcp://127.0.0.1:0", **limits: Any) -> AsyncIterator[WyomingServer]:
        hub = Hub(lambda: model, Limits(**limits))
        async with serving(hub, uri) as running:
            yield running
        assert not hub.clients
        hub.close()

    return start


@pytest.fixture
def http_server(model: Model) -> Callable[..., Any]:
    """Starts an HTTP server in this process, on a port that the system chooses."""
    from serve.http_clients import Running

    from deltakwt.serve import http
    from deltakwt.serve.hub import Hub
    from deltakwt.serve.limits import Limits

    @asynccontextmanager
    async def start(
        token: str | None = None, origins: tuple[str, ...] = (), **limits: Any
    ) -> AsyncIterator[Running]:
        hub = Hub(lambda: model, Limits(**limits))
        async with http.serving(hub, "tcp://127.0.0.1:0", token, origins) as opened:
            yield Running(hub, opened.getsockname()[1])
        assert not hub.clients
        hub.close()

    return start
