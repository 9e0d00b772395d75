"""A client that breaks the Wyoming protocol or a limit is told why. Other clients go on."""

from __future__ import annotations

import asyncio
import socket

import pytest
from serve.conftest import WORDS
from serve.wyoming_clients import Server, answers, attack, chunk, client, line, words
from wyoming.error import Error
from wyoming.info import Info
from wyoming.ping import Ping

from deltakwt.serve import wyoming
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Pace, Refused
from deltakwt.serve.wyoming import info

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


def test_bad_clients_get_the_reason_and_others_are_not_affected(
    wyoming_server: Server, pcm: bytes
) -> None:
    """All of them at once, while a good client streams."""

    async def run() -> None:
        async with wyoming_server() as running, client(running) as good:
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


def test_half_messages_slow_and_idle_clients_are_dropped(
    wyoming_server: Server, pcm: bytes
) -> None:
    half = chunk()[:-10]

    async def run() -> None:
        async with wyoming_server(stall=0.5, idle=1.0) as running, client(running) as good:
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


def test_a_client_that_does_not_read_is_dropped(wyoming_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with wyoming_server(stall=0.5, ahead=0) as running:
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


def test_floods_are_dropped(wyoming_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with wyoming_server(ahead=20.0) as running, client(running) as good:
            listening = asyncio.create_task(words(good, pcm))
            sound = attack(running, *[chunk(bytes(32_000))] * 40)
            messages = attack(running, line(type="nothing") * 10_000)
            for event in await asyncio.gather(sound, messages):
                assert event.data["code"] == "flood"
                assert "ahead of real time" in event.data["text"]
            assert await listening == WORDS

    asyncio.run(run())


def test_others_get_their_turn_while_messages_of_one_client_wait(
    wyoming_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = 0

    def count(hub: Hub) -> Info:
        nonlocal answered
        answered += 1
        return info(hub)

    monkeypatch.setattr(wyoming, "info", count)

    async def run() -> None:
        async with wyoming_server() as running, client(running) as other:
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(line(type="describe") * 1000)
            await writer.drain()
            while not answered:
                await asyncio.sleep(0)
            await other.write_event(Ping("hello").event())
            assert [event.type for event in await answers(other, "pong")] == ["pong"]
            assert answered < 500
            writer.close()

    asyncio.run(run())


def test_a_fast_client_is_slowed_down_not_buffered(wyoming_server: Server, pcm: bytes) -> None:
    """Sound beyond the buffer waits in the client's own socket; every word is still found."""

    async def run() -> None:
        async with wyoming_server(ahead=0, buffered=4096) as running, client(running) as fast:
            assert await words(fast, pcm * 4) == WORDS * 4

    asyncio.run(run())


def test_too_many_clients(wyoming_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with (
            wyoming_server(clients=2) as running,
            client(running) as one,
            client(running) as two,
        ):
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


def test_a_client_that_vanishes_frees_its_place(wyoming_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with wyoming_server(clients=1) as running:
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


def test_the_pace() -> None:
    now = 0.0
    pace = Pace(10.0, lambda: now)
    for _ in range(10):
        pace.add(1.0)
    now = 5.0
    pace.add(5.0)
    with pytest.raises(Refused, match="10 s ahead of real time"):
        pace.add(0.1)
    now = 100.0
    for _ in range(100):  # messages without sound count as 0.1 s
        pace.add()
    with pytest.raises(Refused):
        pace.add()
