"""The HTTP server: real requests to a real server on this machine."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from serve.conftest import WORDS
from serve.http_clients import TOKEN, Server, get, post
from websockets import InvalidStatus
from websockets.asyncio.client import connect

from deltakwt.serve import protocols


def test_post_a_file(http_server: Server, wav: bytes) -> None:
    flac = (CLIPS / "sentence.flac").read_bytes()

    async def run() -> None:
        async with http_server() as running:
            reply = await post(running, wav)
            assert reply.status_code == 200
            found = reply.json()
            assert [event["label"] for event in found["events"]] == WORDS
            assert found["seconds"] == 8.0
            assert found["setting"]
            first = found["events"][0]
            assert 0.9 < first["start"] < first["end"] < first["time"] < 2.6
            assert first["wall_time"].endswith("Z")
            again, other = await asyncio.gather(post(running, wav), post(running, flac))
            assert len(again.json()["events"]) == 3
            assert {"go", "left"} <= {event["label"] for event in other.json()["events"]}

    asyncio.run(run())


def test_bad_bodies_get_a_clear_answer(http_server: Server, wav: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(20_000)  # no content-length

    async def run() -> None:
        async with http_server(body=300_000) as running:
            cases = [
                (b"", 400, "bad-audio", "body: empty file"),
                (b"not a sound" * 99, 400, "bad-audio", "body: not readable as sound"),
                (wav[:100_000], 400, "bad-audio", "body: truncated"),
                (bytes(300_001), 413, "too-large", "larger than 300000 bytes"),
                (chunks(), 413, "too-large", "larger than 300000 bytes"),
            ]
            for body, status, code, text in cases:
                reply = await post(running, body)
                assert reply.status_code == status, text
                assert reply.json()["error"] == code
                assert text in reply.json()["message"]
                assert "/tmp" not in reply.text
            form = {"Content-Type": "multipart/form-data; boundary=x"}
            reply = await post(running, wav, headers=form)
            assert (reply.status_code, reply.json()["error"]) == (400, "bad-message")
            assert "curl --data-binary @FILE" in reply.json()["message"]
            assert running.hub.refusals == {"bad-audio": 3, "too-large": 2, "bad-message": 1}
            assert (await post(running, wav)).status_code == 200
            assert (await get(running, "/nothing")).json()["error"] == "http"
            refused = await get(running, "/v1/spot")
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")

    asyncio.run(run())


def test_time_limits(http_server: Server, wav: bytes) -> None:
    """A slow body, a file that takes too long, and headers that never end."""
    hours = io.BytesIO()
    soundfile.write(hours, np.zeros(40_000_000, np.int16), 16_000, format="FLAC")
    assert len(hours.getvalue()) < 1_000_000  # a small file of 40 minutes

    async def trickle() -> AsyncIterator[bytes]:
        for byte in wav[:100]:
            await asyncio.sleep(0.1)
            yield bytes([byte])

    async def run() -> None:
        async with http_server(seconds=0.5) as running:
            slow, long = await asyncio.gather(
                post(running, trickle()), post(running, hours.getvalue())
            )
            assert (slow.status_code, slow.json()["error"]) == (408, "stall")
            assert (long.status_code, long.json()["error"]) == (503, "slow")
            assert "send shorter files" in long.json()["message"]

    asyncio.run(run())


def test_a_request_that_never_begins_is_dropped(
    http_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "HEADERS", 0.3)

    async def run() -> None:
        async with http_server() as running:
            begun = time.monotonic()
            for start in (b"", b"GET /healthz HTTP/1.1\r\nX: "):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(start)
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asyncio.wait_for(reader.readexactly(1), 20)
                writer.close()
            assert time.monotonic() - begun < 20
            async with connect(running.web) as web:
                assert json.loads(await web.recv())["type"] == "ready"
                await asyncio.sleep(0.6)  # a WebSocket is not a request that never begins
                await web.send("end")
                assert json.loads(await web.recv())["type"] == "end"

    asyncio.run(run())


def test_the_token_and_the_origin(http_server: Server, wav: bytes) -> None:
    header = {"Authorization": f"Bearer {TOKEN}"}

    async def run() -> None:
        async with http_server(token=TOKEN, origins=("https://good.example",)) as running:
            for bad in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                reply = await post(running, wav, headers=bad)
                assert (reply.status_code, reply.json()["error"]) == (401, "token")
                assert (await get(running, "/metrics", headers=bad)).status_code == 401
                with pytest.raises(InvalidStatus, match="401"):
                    await connect(running.web, additional_headers=bad)
            assert (await get(running, "/healthz")).json() == {"status": "ok"}
            assert (await post(running, wav, headers=header)).status_code == 200
            evil = {**header, "Origin": "https://evil.example"}
            assert (await post(running, wav, headers=evil)).status_code == 403
            with pytest.raises(InvalidStatus, match="403"):
                await connect(running.web, additional_headers=evil)
            good = {**header, "Origin": "https://good.example"}
            async with connect(running.web, additional_headers=good) as web:
                assert json.loads(await web.recv())["type"] == "ready"

    asyncio.run(run())


def test_metrics(http_server: Server, pcm: bytes, wav: bytes) -> None:
    def value(text: str, name: str) -> float:
        return float(re.findall(rf"^deltakwt_{re.escape(name)} (\S+)$", text, re.M)[0])

    async def run() -> None:
        async with http_server() as running:
            async with connect(running.web) as web:
                await web.send(pcm)
                for _ in range(3):  # ready and two words: the stream has not ended
                    await web.recv()
                text = (await get(running, "/metrics")).text
                assert value(text, "clients") == 1
                assert value(text, 'words_total{word="yes"}') == 1
                assert value(text, "sound_seconds_total") > 3
            await post(running, wav)
            await post(running, b"x")
            reply = await get(running, "/metrics")
            assert reply.headers["content-type"].startswith("text/plain")
            text = reply.text
            assert value(text, "clients") == 0
            assert value(text, 'words_total{word="yes"}') == 2
            assert value(text, 'words_total{word="no"}') == 0
            assert value(text, 'refusals_total{reason="bad-audio"}') == 1
            assert value(text, "connections_total") == 3
            assert value(text, "windows_total") > 100
            assert value(text, "macs_total") > 1e8
            assert value(text, "model_cpu_seconds_total") > 0
            assert value(text, "process_cpu_seconds_total") > 0
            for line in text.splitlines():
                assert re.fullmatch(r"# (HELP|TYPE) deltakwt_.*|deltakwt_\w+(\{.*\})? \S+", line)

    asyncio.run(run())
