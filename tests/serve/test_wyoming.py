"""The Wyoming server over TCP and Unix sockets, with the package's own client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
from conftest import Run
from numpy.typing import NDArray
from serve.programs import Program

pytest.importorskip("wyoming")

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.wake import Detect, Detection, NotDetected

from deltakwt import DeltakwtError, Model
from deltakwt.core.engine import Engine
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Limits, Pace, Refused
from deltakwt.serve.service import parse_uri
from deltakwt.serve.wyoming import WyomingServer, serving
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

WORDS = ["yes", "left", "stop"]
CHUNK = 2048  # bytes, as Home Assistant sends them
Server = Callable[..., Any]


@pytest.fixture
def server(model: Model) -> Server:
    """Start a server in this process, on a port that the system chooses."""

    @asynccontextmanager
    async def start(uri: str = "tcp://127.0.0.1:0", **limits: Any) -> AsyncIterator[WyomingServer]:
        hub = Hub(lambda: model, Limits(**limits))
        async with serving(hub, uri) as running:
            yield running
        assert not hub.clients
        hub.close()

    return start


def client(running: WyomingServer) -> AsyncClient:
    tcp = running.uri.startswith("tcp")
    uri = f"tcp://127.0.0.1:{running.port}" if tcp else running.uri
    return AsyncClient.from_uri(uri)


async def send(to: AsyncClient, pcm: bytes, width: int = 2, **form: int) -> None:
    """Send a whole stream, from audio-start to audio-stop."""
    rate, channels = form.get("rate", 16_000), form.get("channels", 1)
    size = CHUNK * width * channels
    await to.write_event(AudioStart(rate, width, channels).event())
    for at in range(0, len(pcm), size):
        chunk = AudioChunk(rate, width, channels, pcm[at : at + size])
        await to.write_event(chunk.event())
    await to.write_event(AudioStop().event())


async def answers(to: AsyncClient, last: str) -> list[Event]:
    """Return the events up to the first of type `last`, or to the end of the connection."""
    events: list[Event] = []
    while (event := await to.read_event()) is not None:
        events.append(event)
        if event.type == last:
            break
    return events


async def words(to: AsyncClient, pcm: bytes, **form: int) -> list[str | None]:
    await send(to, pcm, **form)
    await to.write_event(Ping("end").event())  # answered after the stream
    events = await answers(to, "pong")
    return [Detection.from_event(e).name for e in events if Detection.is_type(e.type)]


def test_a_home_assistant_session(server: Server, pcm: bytes) -> None:
    """Describe on one connection; detect, start and chunks on another, closed at a detection."""

    async def run() -> None:
        async with server() as running:
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
def test_words_and_silence(server: Server, pcm: bytes, kind: str, tmp_path: Path) -> None:
    uri = "tcp://127.0.0.1:0" if kind == "tcp" else f"unix://{tmp_path}/socket"

    async def run() -> None:
        async with server(uri) as running, client(running) as one:
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
    server: Server, speech: NDArray[np.float32], rate: int, width: int, channels: int
) -> None:
    sound = converted(5 * speech if width == 1 else speech, rate, width, channels)

    async def run() -> list[str | None]:
        async with server() as running, client(running) as one:
            return await words(one, sound, rate=rate, width=width, channels=channels)

    found = asyncio.run(run())
    assert found == WORDS if width > 1 else "left" in found


def test_fifty_clients_share_one_model(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server() as running:

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


async def attack(running: WyomingServer, *parts: bytes, wait: float = 0.0) -> Event:
    """Send raw bytes, and return the error that the server answers before it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(wait)
        header = json.loads(await asyncio.wait_for(reader.readline(), 30))
        data = json.loads(await reader.readexactly(header["data_length"]))
        assert await reader.read() == b""  # the server closes the connection
        return Event(header["type"], data)
    finally:
        writer.close()


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def chunk(payload: bytes = bytes(64), **data: Any) -> bytes:
    whole = {"rate": 16_000, "width": 2, "channels": 1, **data}
    return line(type="audio-chunk", data=whole, payload_length=len(payload)) + payload


BAD = {
    "garbage": (b"\x00\xff\xfe rubbish\n", "bad-message", "not JSON"),
    "empty line": (b"\n", "bad-message", "not JSON"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "bad-message", "is this a Wyoming client"),
    "list": (b"[1, 2]\n", "bad-message", "not a JSON object"),
    "deep": (b"[" * 50_000 + b"\n", "bad-message", "not JSON"),
    "no type": (line(data={}), "bad-message", "needs a type"),
    "data is a list": (line(type="ping", data=[]), "bad-message", "needs a type"),
    "long line": (b'{"type": "' + b"x" * 200_000, "too-large", "longer than 65536"),
    "huge data": (line(type="ping", data_length=1 << 40), "too-large", "at most 65536"),
    "huge payload": (line(type="x", payload_length=1 << 62), "too-large", "at most 1048576"),
    "negative": (line(type="x", payload_length=-5), "bad-message", "at least 0"),
    "text length": (line(type="x", payload_length="9"), "bad-message", "whole number"),
    "bad data": (line(type="x", data_length=4) + b"[1]]", "bad-message", "not JSON"),
    "no rate": (chunk(rate=None), "bad-audio", "rate None"),
    "rate": (chunk(rate=10**9), "bad-audio", "rate 1000000000: must be 1000 to"),
    "rate is NaN": (chunk(rate=float("nan")), "bad-audio", "rate nan"),
    "width": (chunk(width=5), "bad-audio", "width 5: must be 1, 2, 3 or 4"),
    "channels": (chunk(channels=0), "bad-audio", "channels 0: must be 1 to"),
    "half a sample": (chunk(bytes(63)), "bad-audio", "not whole samples"),
    "unknown word": (line(type="detect", data={"names": ["hey"]}), "bad-names", "'hey'"),
    "names": (line(type="detect", data={"names": {"a": 1}}), "bad-names", "must be a list"),
}


def test_bad_clients_get_the_reason_and_others_are_not_affected(server: Server, pcm: bytes) -> None:
    """All of them at once, while a good client streams."""

    async def run() -> None:
        async with server() as running, client(running) as good:
            listening = asyncio.create_task(words(good, pcm))
            errors = await asyncio.gather(*(attack(running, bad) for bad, _, _ in BAD.values()))
            for (name, (_, code, text)), event in zip(BAD.items(), errors, strict=True):
                assert Error.is_type(event.type), name
                error = Error.from_event(event)
                assert error.code == code, name
                assert text in error.text, name
            assert await listening == WORDS
            assert sum(running.hub.refusals.values()) == len(BAD)
            assert await words(good, pcm) == WORDS

    asyncio.run(run())


def test_half_messages_slow_and_idle_clients_are_dropped(server: Server, pcm: bytes) -> None:
    half = chunk()[:-10]

    async def run() -> None:
        async with server(stall=0.5, idle=1.0) as running, client(running) as good:
            listening = asyncio.create_task(words(good, pcm))
            found = await asyncio.gather(
                attack(running, half),
                attack(running, *(bytes([byte]) for byte in half[:8]), wait=0.1),  # a trickle
                attack(running, b""),
            )
            assert await listening == WORDS
            assert [event.data["code"] for event in found] == ["stall", "stall", "idle"]
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(half)
            writer.write_eof()  # ends within a message
            assert b'"error"' in await reader.read()
            writer.close()

    asyncio.run(run())


def test_a_client_that_does_not_read_is_dropped(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server(stall=0.5) as running:
            plain = socket.socket()
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(plain, ("127.0.0.1", running.port))
            _, writer = await asyncio.open_connection(sock=plain, limit=2048)

            async def ask_on() -> None:
                while True:
                    writer.write(line(type="describe") * 100)
                    await asyncio.wait_for(writer.drain(), 30)

            with pytest.raises(ConnectionError):
                await ask_on()
            assert running.hub.refusals["stall"] == 1
            async with client(running) as good:
                assert await words(good, pcm) == WORDS

    asyncio.run(run())


def test_floods_are_dropped(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server(ahead=20.0) as running, client(running) as good:
            listening = asyncio.create_task(words(good, pcm))
            sound = attack(running, *[chunk(bytes(32_000))] * 40)
            messages = attack(running, line(type="nothing") * 10_000)
            for event in await asyncio.gather(sound, messages):
                assert event.data["code"] == "flood"
                assert "ahead of real time" in event.data["text"]
            assert await listening == WORDS

    asyncio.run(run())


def test_a_fast_client_is_slowed_down_not_buffered(server: Server, pcm: bytes) -> None:
    """Sound beyond the buffer waits in the client's own socket; every word is still found."""

    async def run() -> None:
        async with server(ahead=0, buffered=4096) as running, client(running) as fast:
            assert await words(fast, pcm * 4) == WORDS * 4

    asyncio.run(run())


def test_too_many_clients(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server(clients=2) as running, client(running) as one, client(running) as two:
            for mine in (one, two):
                await mine.write_event(Ping("hello").event())
                assert [event.type for event in await answers(mine, "pong")] == ["pong"]
            async with client(running) as third:
                event = await third.read_event()
                assert event is not None
                assert Error.from_event(event).code == "busy"
                assert await third.read_event() is None
            assert await words(one, pcm) == WORDS
        assert running.hub.refusals == {"busy": 1}

    asyncio.run(run())


def test_a_client_that_vanishes_frees_its_place(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server(clients=1) as running:
            for _ in range(5):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(chunk(pcm[:200_000]))
                await writer.drain()
                writer.transport.abort()
                while running.hub.clients or not running.hub.connections:
                    await asyncio.sleep(0.01)
                running.hub.connections = 0
            async with client(running) as last:
                assert await words(last, pcm) == WORDS

    asyncio.run(run())


def test_the_command_serves_reloads_and_stops(trained: str, pcm: bytes, tmp_path: Path) -> None:
    path = tmp_path / "deltakwt.socket"
    program = Program("wyoming", "--uri", f"unix://{path}", "--model", trained)

    async def talk() -> list[str | None]:
        async with AsyncClient.from_uri(f"unix://{path}") as one:
            return await words(one, pcm)

    try:
        ready = program.wait_for("ready")
        assert ready["level"] == "info"
        assert ready["setting"]
        assert asyncio.run(talk()) == WORDS
        found = program.wait_for("word", 3)
        assert found["label"] == "stop"
        assert 4.5 < found["start"] < 6
        assert found["time"] < 8  # of the stream
        moments = [datetime.fromisoformat(found[name]) for name in ("wall_time", "timestamp")]
        assert abs((moments[1] - moments[0]).total_seconds()) < 5
        other = Program("wyoming", "--uri", f"unix://{path}", "--model", trained)
        assert other.process.wait(60) == 1
        assert "another server listens on" in other.text()
        program.process.send_signal(signal.SIGHUP)
        program.wait_for("reloaded")
        assert asyncio.run(talk()) == WORDS
    finally:
        code = program.stop()
    assert code == 0
    assert program.lines()[-1]["message"] == "stopped"
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--uri", "http://localhost:1"), "give tcp://HOST:PORT or unix:///PATH"),
        (("--uri", "tcp://localhost"), "give tcp://HOST:PORT"),
        (("--uri", "tcp://localhost:99999"), "give tcp://HOST:PORT"),
        (("--log", "xml"), "--log 'xml': must be text or json"),
        (("--model", "nothing"), "nothing: no such model"),
        (("--uri", "unix:///nonexistent/folder/socket"), "cannot be opened"),
    ],
)
def test_mistakes_get_one_line(deltakwt: Run, arguments: tuple[str, ...], message: str) -> None:
    done = deltakwt("serve", "wyoming", *arguments)
    assert done.returncode == (1 if "opened" in message else 2)
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named(deltakwt: Run, tmp_path: Path) -> None:
    (tmp_path / "wyoming.py").write_text("raise ModuleNotFoundError(name='wyoming')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = deltakwt("serve", "wyoming", PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert re.search(r"pip install '(starlette|\.\[serve\])", done.stderr)


def test_addresses() -> None:
    assert parse_uri("tcp://[::1]:5") == ("::1", 5)
    assert parse_uri("unix:///run/x") == Path("/run/x")
    with pytest.raises(DeltakwtError):
        parse_uri("unix://relative/x")
    with pytest.raises(DeltakwtError, match="limit clients"):
        Limits(clients=0)


def test_the_pace() -> None:
    now = 0.0
    pace = Pace(10.0, lambda: now)
    for _ in range(10):
        pace.add(1.0)
    now = 5.0
    pace.add(5.0)
    with pytest.raises(Refused, match="10 s of sound ahead"):
        pace.add(0.1)
