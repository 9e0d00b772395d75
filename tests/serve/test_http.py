"""The HTTP server: real requests and WebSockets to a real server on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run
from numpy.typing import NDArray
from serve.programs import Program

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")
pytest.importorskip("websockets")

import httpx
import websockets
from websockets.asyncio.client import connect

from deltakwt import Model
from deltakwt.serve import http
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Limits

WORDS = ["yes", "left", "stop"]
TOKEN = "a-token-of-some-length"
Server = Callable[..., Any]
Sound = NDArray[np.float32]


class Running:
    """A server in this process."""

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub, self.port = hub, port
        self.url = f"http://127.0.0.1:{port}"
        self.web = f"ws://127.0.0.1:{port}/v1/listen"


@pytest.fixture
def server(model: Model) -> Server:
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


@pytest.fixture(scope="session")
def wav(speech: Sound) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, speech, 16_000, format="WAV", subtype="PCM_16")
    return file.getvalue()


async def post(running: Running, body: Any, **options: Any) -> Any:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{running.url}/v1/spot", content=body, **options)


async def get(running: Running, path: str, **options: Any) -> Any:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.get(running.url + path, **options)


async def read(web: Any) -> list[Any]:
    """Return all messages that arrive before the connection is closed."""
    messages = []
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            messages.append(json.loads(await web.recv()))
    return messages


async def stream(running: Running, pcm: bytes, query: str = "", size: int = 3200) -> list[Any]:
    """Send a stream over a WebSocket and return all messages of the server."""
    async with connect(running.web + query) as web:
        for at in range(0, len(pcm), size):
            await web.send(pcm[at : at + size])
        await web.send("end")
        return await read(web)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def labels(messages: list[Any]) -> list[str]:
    return [message["label"] for message in messages if message.get("type") == "word"]


def test_post_a_file(server: Server, wav: bytes) -> None:
    flac = (CLIPS / "sentence.flac").read_bytes()

    async def run() -> None:
        async with server() as running:
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


def test_bad_bodies_get_a_clear_answer(server: Server, wav: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(20_000)  # no content-length

    async def run() -> None:
        async with server(body=300_000) as running:
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
            assert running.hub.refusals == {"bad-audio": 3, "too-large": 2}
            assert (await post(running, wav)).status_code == 200
            assert (await get(running, "/nothing")).json()["error"] == "http"
            refused = await get(running, "/v1/spot")
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")

    asyncio.run(run())


def test_time_limits(server: Server, wav: bytes) -> None:
    """A slow body, a file that takes too long, and headers that never end."""
    hours = io.BytesIO()
    soundfile.write(hours, np.zeros(40_000_000, np.int16), 16_000, format="FLAC")
    assert len(hours.getvalue()) < 1_000_000  # a small file of 40 minutes

    async def trickle() -> AsyncIterator[bytes]:
        for byte in wav[:100]:
            await asyncio.sleep(0.1)
            yield bytes([byte])

    async def run() -> None:
        async with server(seconds=0.5) as running:
            slow, long = await asyncio.gather(
                post(running, trickle()), post(running, hours.getvalue())
            )
            assert (slow.status_code, slow.json()["error"]) == (408, "stall")
            assert (long.status_code, long.json()["error"]) == (503, "slow")
            assert "send shorter files" in long.json()["message"]

    asyncio.run(run())


def test_a_request_that_never_begins_is_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEADERS", 0.3)

    async def run() -> None:
        async with server() as running:
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


def test_a_websocket_stream(server: Server, pcm: bytes, speech: Sound) -> None:
    stereo = np.repeat(speech[:, None], 2, axis=1).astype("<f4").tobytes()

    async def run() -> None:
        async with server() as running:
            messages = await stream(running, pcm)
            assert messages[0]["type"] == "ready"
            assert "yes" in messages[0]["words"]
            assert labels(messages) == WORDS
            assert messages[-1] == {"type": "end", "seconds": 8.0, "words": 3}
            found = await stream(running, stereo, "?format=f32&channels=2&words=no,left", 64_000)
            assert labels(found) == ["left"]
            assert set(found[1]) == {"type", "label", "score", "start", "end", "time", "wall_time"}

    asyncio.run(run())


def test_twenty_websockets_and_a_post_at_once(server: Server, pcm: bytes, wav: bytes) -> None:
    async def run() -> None:
        async with server() as running:
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
    server: Server, pcm: bytes
) -> None:
    async def talk(running: Running, query: str, *messages: Any) -> tuple[Any, int]:
        async with connect(running.web + query) as web:
            with contextlib.suppress(websockets.ConnectionClosed):
                for message in messages:
                    await web.send(message)
            received = await read(web)
            return (received[-1] if received else None), web.close_code

    async def run() -> None:
        async with server(message=100_000, idle=3.0, ahead=30.0) as running:
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


def test_too_many_clients(server: Server, pcm: bytes, wav: bytes) -> None:
    async def run() -> None:
        async with server(clients=1) as running, connect(running.web) as web:
            await web.recv()
            refused = await post(running, wav)
            assert (refused.status_code, refused.json()["error"]) == (503, "busy")
            with pytest.raises(websockets.InvalidStatus, match="503"):
                await connect(running.web)
            assert (await get(running, "/healthz")).status_code == 200
            assert running.hub.refusals == {"busy": 2}
            await web.send(pcm)
            await web.send("end")
            assert len(await read(web)) == 4

    asyncio.run(run())


def test_a_client_that_vanishes_frees_its_place(server: Server, pcm: bytes) -> None:
    async def run() -> None:
        async with server(clients=1) as running:
            for number in range(1, 4):
                web = await connect(running.web)
                await web.send(pcm[:100_000])
                web.transport.abort()
                while running.hub.connections < number or running.hub.clients:
                    await asyncio.sleep(0.01)
            assert labels(await stream(running, pcm)) == WORDS

    asyncio.run(run())


def test_the_token_and_the_origin(server: Server, wav: bytes) -> None:
    header = {"Authorization": f"Bearer {TOKEN}"}

    async def run() -> None:
        async with server(token=TOKEN, origins=("https://good.example",)) as running:
            for bad in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
                reply = await post(running, wav, headers=bad)
                assert (reply.status_code, reply.json()["error"]) == (401, "token")
                assert (await get(running, "/metrics", headers=bad)).status_code == 401
                with pytest.raises(websockets.InvalidStatus, match="401"):
                    await connect(running.web, additional_headers=bad)
            assert (await get(running, "/healthz")).json() == {"status": "ok"}
            assert (await post(running, wav, headers=header)).status_code == 200
            evil = {**header, "Origin": "https://evil.example"}
            assert (await post(running, wav, headers=evil)).status_code == 403
            with pytest.raises(websockets.InvalidStatus, match="403"):
                await connect(running.web, additional_headers=evil)
            good = {**header, "Origin": "https://good.example"}
            async with connect(running.web, additional_headers=good) as web:
                assert json.loads(await web.recv())["type"] == "ready"

    asyncio.run(run())


def test_metrics(server: Server, pcm: bytes, wav: bytes) -> None:
    def value(text: str, name: str) -> float:
        return float(re.findall(rf"^deltakwt_{re.escape(name)} (\S+)$", text, re.M)[0])

    async def run() -> None:
        async with server() as running:
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


@pytest.mark.parametrize("token", [None, TOKEN])
def test_schemathesis_accepts_the_openapi_document(
    trained: str, token: str | None, tmp_path: Path
) -> None:
    """It reads the document, makes up requests, and checks the answers against the document."""
    pytest.importorskip("schemathesis")
    port = free_port()
    environment = {} if token is None else {"DELTAKWT_TOKEN": token}
    header = [] if token is None else ["--header", f"Authorization: Bearer {token}"]
    uri = f"tcp://127.0.0.1:{port}"
    program = Program("http", "--uri", uri, "--model", trained, **environment)
    try:
        program.wait_for("ready")
        done = subprocess.run(
            [
                *(Path(sys.executable).parent / "schemathesis", "run", *header),
                *("--max-examples", "10", "--seed", "1"),
                # Which bytes are a sound file cannot be said in a schema: 400 is a right answer.
                *("--exclude-checks", "positive_data_acceptance"),
                f"http://127.0.0.1:{port}/openapi.json",
            ],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
        )
    finally:
        assert program.stop() == 0
    assert done.returncode == 0, done.stdout
    assert "POST /v1/spot" in done.stdout
    assert "failed" not in done.stdout


def test_the_command(trained: str, pcm: bytes, wav: bytes, tmp_path: Path) -> None:
    path = tmp_path / "http.socket"
    program = Program("http", "--uri", f"unix://{path}", "--model", trained)
    try:
        program.wait_for("ready")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
            reply = client.post("http://localhost/v1/spot", content=wav)
            assert [event["label"] for event in reply.json()["events"]] == WORDS
            assert program.wait_for("word", 3)["client"] == "http-1"
            program.process.send_signal(signal.SIGHUP)
            program.wait_for("reloaded")
            assert client.get("http://localhost/healthz").json() == {"status": "ok"}
    finally:
        code = program.stop(signal.SIGINT)
    assert code == 0
    assert program.lines()[-1]["message"] == "stopped"
    assert not path.exists()


def test_a_server_stops_while_clients_are_connected(trained: str, pcm: bytes) -> None:
    port = free_port()
    program = Program("http", "--uri", f"tcp://127.0.0.1:{port}", "--model", trained)
    program.wait_for("ready")

    async def run() -> int:
        async with connect(f"ws://127.0.0.1:{port}/v1/listen") as web:
            await web.send(pcm)
            await web.recv()
            program.process.send_signal(signal.SIGTERM)
            await read(web)
            return web.close_code

    try:
        assert asyncio.run(run()) in (1006, 1012)
        assert program.stop(None) == 0
    finally:
        program.process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--uri", "tcp://0.0.0.0:0"), "give --token-file or DELTAKWT_TOKEN"),
        (("--token-file", "/nonexistent"), "--token-file /nonexistent: cannot be read"),
        (("--uri", "udp://x"), "give tcp://HOST:PORT"),
        (("--max-seconds", "0"), "0"),
    ],
)
def test_mistakes_get_one_line(deltakwt: Run, arguments: tuple[str, ...], message: str) -> None:
    done = deltakwt("serve", "http", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_short_token_is_refused(deltakwt: Run) -> None:
    done = deltakwt("serve", "http", "--uri", "tcp://127.0.0.1:0", DELTAKWT_TOKEN="short")
    assert done.returncode == 2
    assert "5 characters: use at least 16" in done.stderr


def test_a_missing_package_is_named(deltakwt: Run, tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError(name='starlette')")
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = deltakwt("serve", "http", PYTHONPATH=path)
    assert done.returncode == 2
    assert re.search(r"pip install '(starlette|\.\[serve\])", done.stderr)
