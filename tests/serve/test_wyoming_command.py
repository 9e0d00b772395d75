"""`deltakwt serve wyoming`: the command, its signals, its addresses and its mistakes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from datetime import datetime
from pathlib import Path

import pytest
from conftest import Run
from serve.conftest import WORDS
from serve.programs import Program
from serve.wyoming_clients import words
from wyoming.client import AsyncClient

from deltakwt import DeltakwtError
from deltakwt.serve.limits import Limits
from deltakwt.serve.service import parse_uri


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
