"""Clients of the Wyoming server: the package's own, and ones that send raw bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("wyoming")

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.event import Event
from wyoming.ping import Ping
from wyoming.wake import Detection

from deltakwt.serve.wyoming import WyomingServer

CHUNK = 2048  # bytes, as Home Assistant sends them
Server = Callable[..., Any]


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
