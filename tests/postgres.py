"""A PostgreSQL server of the tests' own, which can be restarted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Server:
    """A server on a free port. It does not run as root, so root starts it as another user."""

    def __init__(self, programs: Path, home: Path, as_user: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"postgresql://tuner@127.0.0.1:{port}/postgres"
        data = home / "data"
        initdb = [*as_user, programs / "initdb", "-D", data, "-A", "trust", "-U", "tuner"]
        self._run([*initdb, "--no-sync"])
        self._control = [*as_user, programs / "pg_ctl", "-D", data, "-l", home / "log", "-w"]
        self._options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"

    def start(self) -> None:
        self._run([*self._control, "-o", self._options, "start"])

    def stop(self, how: str = "immediate") -> None:
        """Stop at once, and close every connection."""
        self._run([*self._control, "-m", how, "stop"])

    @staticmethod
    def _run(command: list[object]) -> None:
        subprocess.run(list(map(str, command)), check=True, capture_output=True, cwd="/")


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server for as long as the block runs, or skip the test with the reason."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        pytest.skip("needs a PostgreSQL server: Debian's package postgresql is not installed")
    as_user: list[str] = []
    with tempfile.TemporaryDirectory() as home:  # pytest's own folders are closed to other users
        if os.geteuid() == 0:
            if shutil.which("runuser") is None:
                pytest.skip("PostgreSQL does not run as root and there is no runuser")
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(home, "postgres")
        server = Server(Path(initdb).parent, Path(home), as_user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
