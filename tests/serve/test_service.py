"""Servers as system services: messages to systemd, unit files, logs, exit codes, load."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLIPS, PROJECT
from serve.programs import Program

pytest.importorskip("wyoming")

from deltakwt.logs import JsonFormatter, TextFormatter, notify, watchdog_seconds
from deltakwt.serve.service import service

UNITS = sorted((PROJECT / "examples" / "systemd").glob("*.service"))


def test_a_service_tells_systemd_what_it_does(
    manager: socket.socket, trained: str, tmp_path: Path
) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    uri = f"unix://{tmp_path}/socket"
    program = Program("wyoming", "--uri", uri, "--model", trained, **environment)

    def next_but_watchdog() -> str:
        while (state := manager.recv(4096).decode()) == "WATCHDOG=1":
            pass
        return state

    try:
        assert next_but_watchdog() == "READY=1"
        assert (tmp_path / "socket").exists()  # ready means that clients can connect
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        program.process.send_signal(signal.SIGHUP)
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", next_but_watchdog())
        assert next_but_watchdog() == "READY=1"
        program.process.send_signal(signal.SIGTERM)
        assert next_but_watchdog() == "STOPPING=1"
        assert program.stop(None) == 0
    finally:
        program.process.kill()


def test_a_service_whose_threads_hang_sends_no_watchdog_message(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    hangs = False

    async def alive() -> None:
        if hangs:
            await asyncio.Event().wait()

    async def reload() -> None:
        pass

    async def run() -> None:
        nonlocal hangs
        manager.setblocking(False)
        loop = asyncio.get_running_loop()
        async with service(alive, reload):
            for _ in range(3):
                assert await loop.sock_recv(manager, 4096) == b"WATCHDOG=1"
            hangs = True
            await asyncio.sleep(0.1)
            while True:  # those that were sent before
                try:
                    manager.recv(4096)
                except BlockingIOError:
                    break
            await asyncio.sleep(0.2)
            with pytest.raises(BlockingIOError):
                manager.recv(4096)
        assert await loop.sock_recv(manager, 4096) == b"STOPPING=1"

    asyncio.run(run())


def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    assert not notify("READY=1")
    for usec, pid, seconds in [("", "", None), ("5000000", "", 5.0), ("5000000", "1", None)]:
        monkeypatch.setenv("WATCHDOG_USEC", usec)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        if pid:
            monkeypatch.setenv("WATCHDOG_PID", pid)
        assert watchdog_seconds() == seconds


def test_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("abstract sockets exist on Linux only")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0deltakwt-test-notify")
        monkeypatch.setenv("NOTIFY_SOCKET", "@deltakwt-test-notify")
        assert notify("READY=1")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_unit_files(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    for line in ("Type=notify", "WatchdogSec=30", "Restart=on-failure", "DynamicUser=yes"):
        assert line in text.splitlines()
    [start] = re.findall(r"^ExecStart=(.*)$", text, re.M)
    words = start.replace("%d/token", "/dev/null").split()
    assert words[0].endswith("/deltakwt")
    done = subprocess.run(  # the options exist: --help after them would complain
        [sys.executable, "-m", "deltakwt", *words[1:], "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    copy = tmp_path / unit.name  # systemd wants the program to exist
    copy.write_text(text.replace(words[0], "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_there_is_a_unit_for_each_program_that_runs_all_day() -> None:
    assert [unit.stem for unit in UNITS] == ["deltakwt-http", "deltakwt-listen", "deltakwt-wyoming"]


def test_foreign_text_cannot_break_a_log_line() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "refused", (), None)
    record.fields = {"reason": 'a\nb"\x1b[31m', "count": 3}  # type: ignore[attr-defined]
    line = TextFormatter().format(record)
    assert line.endswith(r'warning refused reason="a\nb\"\u001b[31m" count=3')
    assert "\n" not in line
    document = json.loads(JsonFormatter().format(record))
    assert document["reason"] == 'a\nb"\x1b[31m'
    assert document["level"] == "warning"
    assert document["timestamp"].endswith("Z")


def test_an_address_in_use_is_a_failed_run(trained: str) -> None:
    """Code 1, so that systemd starts the service again; 2 would mean a wrong option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        uri = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for kind in ("wyoming", "http"):
            program = Program(kind, "--uri", uri, "--model", trained)
            assert program.process.wait(60) == 1
            assert "cannot be opened: Address already in use" in program.text()


def test_the_load_program(tmp_path: Path) -> None:
    """benchmarks/clients.py starts a server for each number of clients and puts load on it."""
    sound = ["--sound", str(CLIPS / "sentence.flac"), "--seconds", "6"]
    command = [sys.executable, "benchmarks/clients.py", *sound, "--clients", "1", "3"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "results.json"], capture_output=True, text=True, cwd=PROJECT
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\| [13] \| [\d.]+ \| ", done.stdout, re.M)) == 2
    one, three = json.loads((tmp_path / "results.json").read_text())
    assert (one["clients"], three["clients"]) == (1, 3)
    assert three["words"] > one["words"] > 0
    for result in (one, three):
        assert result["dropped_clients"] == 0
        assert result["server_mb"] > 10
        assert result["delay_ms"]["worst"] > 0
    assert three["server_mb"] - one["server_mb"] < 2 * 2.0 + 8  # 2 MB for a further client
