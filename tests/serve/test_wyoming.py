"""The Wyoming server over TCP and Unix sockets, with the package's own client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray
from serve.conftest import WORDS
from serve.wyoming_clients import CHUNK, Server, answers, client, send, words
from wyoming.audio import AudioChunk, AudioStart
from wyoming.info import Describe, Info
from wyoming.wake import Detect, Detection, NotDetected

from deltakwt import Model
from deltakwt.core.engine import Engine
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Limits
from deltakwt.serve.wyoming import serving
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve


def test_a_home_assistant_session(wyoming_server: Server, pcm: bytes) -> None:
    """Describe on one connection; detect, start and chunks on another, closed at a detection."""

    async def run() -> None:
        async with wyoming_server() as running:
            async with client(running) as asking:
                await asking.write_event(Describe().event())
                event = await asking.read_event()
            assert event is not None
            info = Info.from_event(event)
            [program] = info.wake
            assert program.name == "deltakwt"
            assert program.installed
            assert {"yes", "no", "stop"} <= {one.name for one in program.models}
            assert not any(one.name.startswith("_") for one in program.models)
            async with client(running) as listening:
                await listening.write_event(Detect(names=["left"]).event())
                await listening.write_event(AudioStart(16_000, 2, 1).event())
                reading = asyncio.create_task(listening.read_event())
                for number, at in enumerate(range(0, len(pcm), CHUNK)):
                    sound = pcm[at : at + CHUNK]
                    chunk = AudioChunk(16_000, 2, 1, sound, timestamp=7_000 + 64 * number)
                    await listening.write_event(chunk.event())
                event = await reading
            assert event is not None
            found = Detection.from_event(event)
            assert found.name == "left"
            assert found.timestamp is not None
            assert 10_000 < found.timestamp < 12_000  # 7 s, and the word at 3 s
            assert 2.5 < event.data["start"] < event.data["end"] < event.data["time"] < 5
            assert 0.5 < event.data["score"] <= 1
            assert event.data["wall_time"].endswith("Z")

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_words_and_silence(wyoming_server: Server, pcm: bytes, kind: str, tmp_path: Path) -> None:
    uri = "tcp://127.0.0.1:0" if kind == "tcp" else f"unix://{tmp_path}/socket"

    async def run() -> None:
        async with wyoming_server(uri) as running, client(running) as one:
            assert await words(one, pcm) == WORDS
            assert await words(one, pcm) == WORDS  # the next stream of the same connection
            await one.write_event(Detect(names=["no", "stop"]).event())
            assert await words(one, pcm) == ["stop"]
            await send(one, bytes(3 * 32_000))
            [event] = await answers(one, "not-detected")
            assert NotDetected.is_type(event.type)
            assert event.data["timestamp"] == 3_000
            assert event.data["wall_time"]

    asyncio.run(run())
    assert not (tmp_path / "socket").exists()


def converted(sound: NDArray[np.float32], rate: int, width: int, channels: int) -> bytes:
    at_rate = soxr.resample(sound, 16_000, rate) if rate != 16_000 else sound
    wide = np.repeat(at_rate[:, None], channels, axis=1)
    if width == 1:
        return (128 + 127 * wide).clip(0, 255).astype(np.uint8).tobytes()
    whole = (wide.astype(np.float64) * (2**31 - 1)).clip(-(2**31), 2**31 - 1).astype("<i4")
    return whole.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()


@pytest.mark.parametrize(
    ("rate", "width", "channels"),
    [(48_000, 2, 1), (44_100, 3, 2), (16_000, 4, 1), (22_050, 2, 6), (16_000, 1, 1)],
)
def test_any_pcm(
    wyoming_server: Server, speech: NDArray[np.float32], rate: int, width: int, channels: int
) -> None:
    sound = converted(5 * speech if width == 1 else speech, rate, width, channels)

    async def run() -> list[str | None]:
        async with wyoming_server() as running, client(running) as one:
            return await words(one, sound, rate=rate, width=width, channels=channels)

    found = asyncio.run(run())
    assert found == WORDS if width > 1 else "left" in found


def test_fifty_clients_share_one_model(wyoming_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with wyoming_server() as running:

            async def one(number: int) -> list[str | None]:
                async with client(running) as mine:
                    name = WORDS[number % 3]
                    await mine.write_event(Detect(names=[name]).event())
                    assert await words(mine, pcm) == [name]
                    return [name]

            found = await asyncio.gather(*(one(number) for number in range(50)))
            assert len(found) == 50
            assert running.hub.connections == 50
            assert running.hub.words == {"yes": 17, "left": 17, "stop": 16}
            assert "deltakwt_connections_total 50\n" in running.hub.metrics()

    asyncio.run(run())


def test_several_models_in_one_server(model: Model, pcm: bytes) -> None:
    """The second model adds its own words; a word of both is reported once, by the first."""
    renamed = tuple("halt" if label == "stop" else label for label in model.labels)
    engine = Engine(model.config, load_weights(resolve(model.name)).tensors)
    second = Model(replace(model.config, labels=renamed), engine, model.profiles, "second")

    async def run() -> None:
        hub = Hub(lambda: model, Limits(), 0, [lambda: second])
        async with serving(hub, "tcp://127.0.0.1:0") as running, client(running) as one:
            await one.write_event(Describe().event())
            info = Info.from_event(await one.read_event())
            described = {entry.name: entry.description for entry in info.wake[0].models}
            assert described["halt"] == "halt (second)"
            assert described["yes"].startswith("yes (")
            assert "second" not in described["yes"]
            assert len(described) == 11
            assert sorted(await words(one, pcm)) == sorted([*WORDS, "halt"])
            await one.write_event(Detect(names=["halt"]).event())
            assert await words(one, pcm) == ["halt"]
        hub.close()

    asyncio.run(run())
