"""`deltakwt serve http`: the command, how it stops, its mistakes, and its OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Run
from serve.conftest import WORDS
from serve.http_clients import TOKEN, free_port, read
from serve.programs import Program

pytest.importorskip("httpx")

import httpx
from websockets.asyncio.client import connect

from deltakwt.weights.registry import resolve


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


def test_sighup_reads_the_settings_again(trained: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(resolve(trained), folder)
    port = free_port()
    program = Program("http", "--uri", f"tcp://127.0.0.1:{port}", "--model", str(folder))

    def setting() -> str:
        return str(httpx.get(f"http://127.0.0.1:{port}/v1/words", timeout=60).json()["setting"])

    try:
        program.wait_for("ready")
        assert setting() != "fast"
        profiles = json.loads((folder / "profiles.json").read_text())
        (folder / "profiles.json").write_text(json.dumps(profiles | {"default": "fast"}))
        program.process.send_signal(signal.SIGHUP)
        assert program.wait_for("reloaded")["setting"] == "fast"
        assert setting() == "fast"
        (folder / "profiles.json").write_text("nonsense")
        program.process.send_signal(signal.SIGHUP)
        failed = program.wait_for("reload failed; the old model stays")
        assert "profiles.json: not valid JSON" in failed["error"]
        assert setting() == "fast"
    finally:
        assert program.stop() == 0


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
