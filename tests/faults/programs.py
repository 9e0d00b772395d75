"""The command as a process that can be signalled, limited, and given bad disks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Limit = Callable[[], None]  # runs in the new process before the command starts


class Program:
    """`deltakwt ...` in a process of its own. Its output goes to files, so it never blocks."""

    def __init__(self, *arguments: object, before: Limit | None = None, **environment: str) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env={**os.environ, **environment},
            preexec_fn=before,
        )

    @staticmethod
    def command(*arguments: object) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "deltakwt", *map(str, arguments)]

    @property
    def out(self) -> str:
        return os.pread(self._out.fileno(), 1 << 20, 0).decode()

    @property
    def err(self) -> str:
        return os.pread(self._err.fileno(), 1 << 20, 0).decode()

    def wait_until(self, condition: Callable[[], object], seconds: float = 120) -> None:
        """Wait until the command has come to the point that the condition describes."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < deadline, self.err
            time.sleep(0.005)

    def end(self, number: int | None = None) -> int:
        """Send a signal, if one is given, and return the exit code."""
        try:
            if number is not None:
                assert self.process.poll() is None, self.err
                self.process.send_signal(number)
            return self.process.wait(120)
        finally:
            self.process.kill()
            self.process.wait()


def run(*arguments: object, before: Limit | None = None, **environment: str) -> Program:
    """Run a command to its end."""
    program = Program(*arguments, before=before, **environment)
    program.end()
    return program


def assert_one_line(program: Program, code: int, *words: str) -> None:
    """Check that a command failed with this code and one line that contains these words."""
    assert program.process.returncode == code, program.err
    assert program.err.count("\n") == 1, program.err
    assert program.err.startswith("deltakwt: ")
    for word in words:
        assert word in program.err


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path | None]:
    """Mount a disk of `size` bytes on a folder, or give None where this is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "deltakwt-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def whole_tree(folder: Path) -> dict[str, int]:
    """Return the size of every file below a folder, and -1 for every folder."""
    return {
        str(path.relative_to(folder)): path.stat().st_size if path.is_file() else -1
        for path in sorted(folder.rglob("*"))
    }
