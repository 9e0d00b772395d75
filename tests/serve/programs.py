"""Servers as programs of their own, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any


class Program:
    """`deltakwt serve ...` in a process of its own, with its log read from a file."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deltakwt", "serve", *arguments, "--log", "json"],
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return the log so far."""
        text = os.pread(self._log.fileno(), 1 << 24, 0).decode()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def text(self) -> str:
        return os.pread(self._log.fileno(), 1 << 24, 0).decode()

    def wait_for(self, message: str, count: int = 1, seconds: float = 60) -> dict[str, Any]:
        """Wait for the nth log line with that message, and return it."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            found = [line for line in self.lines() if line["message"] == message]
            if len(found) >= count:
                return found[count - 1]
            assert self.process.poll() is None, self.text()
            time.sleep(0.02)
        raise AssertionError(f"no {message!r} in {self.text()}")

    def stop(self, number: int | None = signal.SIGTERM) -> int:
        """Send a signal, unless one was sent before, and return the exit code."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
