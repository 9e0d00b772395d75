"""The WebSocket of the HTTP server: streams, and clients that break its rules."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serve.conftest import WORDS
from serve.http_clients import Running, Server, get, labels, post, read, stream
from websockets import ConnectionClosed, InvalidStatus
from websockets.asyncio.client import connect

Sound = NDArray[np.float32]


def test_a_websocket_stream(http_server: Server, pcm: bytes, speech: Sound) -> None:
    stereo = np.repeat(speech[:, None], 2, axis=1).astype("<f4").tobytes()

    async def run() -> None:
        async with http_server() as running:
            messages = await stream(running, pcm)
            assert messages[0]["type"] == "ready"
            assert "yes" in messages[0]["words"]
            assert labels(messages) == WORDS
            assert messages[-1] == {"type": "end", "seconds": 8.0, "words": 3}
            found = await stream(running, stereo, "?format=f32&channels=2&words=no,left", 64_000)
            assert labels(found) == ["left"]
            assert set(found[1]) == {"type", "label", "score", "start", "end", "time", "wall_time"}

    asyncio.run(run())


def test_twenty_websockets_and_a_post_at_once(http_server: Server, pcm: bytes, wav: bytes) -> None:
    async def run() -> None:
        async with http_server() as running:
            streams = [stream(running, pcm) for _ in range(20)]
            reply, *found = await asyncio.gather(post(running, wav), *streams)
            assert [labels(messages) for messages in found] == [WORDS] * 20
            assert len(reply.json()["events"]) == 3

    asyncio.run(run())


BAD = {
    "?rate=9e9": ("bad-audio", "whole numbers"),
    "?rate=5": ("bad-audio", "rate 5: must be 1000 to"),
    "?rate=²": ("bad-audio", "whole numbers"),
    "?channels=999": ("bad-audio", "channels 999: must be 1 to"),
    "?format=mp3": ("bad-audio", "sample format 'mp3'"),
    "?words=hey": ("bad-names", "'hey' is not known"),
}


def test_bad_websockets_get_the_reason_and_others_are_not_affected(
    http_server: Server, pcm: bytes
) -> None:
    async def talk(running: Running, query: str, *messages: Any) -> tuple[Any, int]:
        async with connect(running.web + query) as web:
            with contextlib.suppress(ConnectionClosed):
                for message in messages:
                    await web.send(message)
            received = await read(web)
            return (received[-1] if received else None), web.close_code

    async def run() -> None:
        async with http_server(message=100_000, idle=3.0, ahead=30.0) as running:
            listening = asyncio.create_task(stream(running, pcm))
            for query, (code, text) in BAD.items():
                last, closed = await talk(running, query)
                assert (last["error"], closed) == (code, 1008), query
                assert text in last["message"]
            nan = np.full(1600, np.nan, "<f4").tobytes()
            cases = [
                ("", [bytes(3)], "bad-audio"),
                ("", ["hello"], "bad-message"),
                ("?format=f32", [nan, nan], "bad-audio"),
                ("", [bytes(64_000)] * 30, "flood"),
                ("", [], "idle"),
            ]
            for query, messages, code in cases:
                last, closed = await talk(running, query, *messages)
                assert (last["error"], closed) == (code, 1008)
            assert (await talk(running, "", bytes(200_000)))[1] == 1009  # larger than allowed
            assert labels(await listening) == WORDS
            assert labels(await stream(running, pcm)) == WORDS

    asyncio.run(run())


FRAMES = {  # bytes of frames, masked with zeros, and how the client is refused
    "half a message": (b"\x82\x8a\0\0\0\0" + b"abc", "stall", "a message took longer than 0.5 s"),
    "a header only": (b"\x82\x8a\0\0\0\0", "stall", "a message took longer than 0.5 s"),
    "no last fragment": (b"\x02\x82\0\0\0\0ab", "stall", "a message took longer than 0.5 s"),
    "pings": (b"\x89\x80\0\0\0\0" * 2000, "flood", "ahead of real time"),
    "fragments": (
        b"\x02\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 2000,
        *("flood", "ahead of real time"),
    ),
    "not UTF-8": (b"\x81\x82\0\0\0\0\xff\xfe", "bad-message", "not UTF-8"),
}


def test_bad_frames_get_the_reason_and_others_are_not_affected(
    http_server: Server, pcm: bytes
) -> None:
    async def attack(running: Running, frames: bytes) -> Any:
        async with connect(running.web) as web:
            web.transport.write(frames)
            return (await read(web))[-1]

    async def run() -> None:
        async with http_server(stall=0.5, ahead=60.0) as running:
            listening = asyncio.create_task(stream(running, pcm))
            attacks = [attack(running, frames) for frames, _, _ in FRAMES.values()]
            for case, last in zip(FRAMES, await asyncio.gather(*attacks), strict=True):
                _, code, text = FRAMES[case]
                assert last["error"] == code, case
                assert text in last["message"], case
            assert labels(await listening) == WORDS
            assert sum(running.hub.refusals.values()) == len(FRAMES)

    asyncio.run(run())


def test_a_client_that_waits_for_the_server_has_not_stalled(
    http_server: Server, pcm: bytes
) -> None:
    """Its messages wait for longer than the limit, because the buffer is small."""

    async def run() -> None:
        async with http_server(stall=0.05, ahead=0, buffered=4096) as running:
            assert labels(await stream(running, pcm * 4)) == WORDS * 4

    asyncio.run(run())


def test_too_many_clients(http_server: Server, pcm: bytes, wav: bytes) -> None:
    async def run() -> None:
        async with http_server(clients=1) as running, connect(running.web) as web:
            await web.recv()
            refused = await post(running, wav)
            assert (refused.status_code, refused.json()["error"]) == (503, "busy")
            with pytest.raises(InvalidStatus, match="503"):
                await connect(running.web)
            assert (await get(running, "/healthz")).status_code == 200
            assert running.hub.refusals == {"busy": 2}
            await web.send(pcm)
            await web.send("end")
            assert len(await read(web)) == 4

    asyncio.run(run())


def test_a_client_that_vanishes_frees_its_place(http_server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with http_server(clients=1) as running:
            for number in range(1, 4):
                web = await connect(running.web)
                await web.send(pcm[:100_000])
                web.transport.abort()
                while running.hub.connections < number or running.hub.clients:
                    await asyncio.sleep(0.01)
            assert labels(await stream(running, pcm)) == WORDS

    asyncio.run(run())
