"""Locks of folders: two runs never write into the same folder.

The lock is held on the folder itself (`flock`), so no lock file is left behind, and the system
releases it when a process ends, however it ends. On a file system without such locks (some network
file systems) nothing is locked. Windows cannot lock a folder: there the lock is a file beside it,
which the system removes when the process ends.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltakwt.core.errors import DeltakwtError

if sys.platform != "win32":
    import fcntl

_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class FolderInUse(DeltakwtError):
    """Another run is writing into the folder. The input is right, so the exit code is 1."""

    exit_code = 1


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an existing folder. If another run holds it, raise `FolderInUse`, or `wait` for it."""
    try:
        descriptor = _held(folder, wait)
    except BlockingIOError:
        raise FolderInUse(
            f"{folder}: another run is writing into this folder; wait for its end or choose"
            " another folder"
        ) from None
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":

    def _held(folder: Path, wait: bool) -> int:
        """Return the descriptor that holds the lock; BlockingIOError if another run holds it."""
        whole = folder.resolve(strict=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_TEMPORARY  # removed when it is closed
        while True:
            try:
                return os.open(whole.with_name(f".{whole.name}.lock"), flags)
            except (FileExistsError, PermissionError):
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, "held by another run") from None
                time.sleep(0.1)

else:

    def _held(folder: Path, wait: bool) -> int:
        """Return the descriptor that holds the lock; BlockingIOError if another run holds it."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _HELD:
                os.close(descriptor)
                raise BlockingIOError(errno.EAGAIN, "held by another run") from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class DeferredSignals:
    """SIGINT and SIGTERM wait in here; see `signals_deferred`."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._handlers: dict[int, Any] = {}

    def defer(self) -> None:
        """Let signals wait from now on."""
        for number in self.NUMBERS:
            self._handlers[number] = signal.signal(number, self._note) or signal.SIG_DFL

    def deliver(self) -> None:
        """Restore the handlers and deliver what has waited."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            signal.raise_signal(number)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Deliver signals at once during this block."""
        if not self._handlers:
            yield
            return
        try:
            self.deliver()
            yield
        finally:
            self.defer()

    def _note(self, number: int, _: object) -> None:
        self._waiting.append(number)
        if self._waiting.count(number) > 1:  # asked twice: it does not wait any longer
            self.deliver()


@contextmanager
def signals_deferred() -> Iterator[DeferredSignals]:
    """Let SIGINT and SIGTERM wait until the end of the block.

    Their handlers raise an exception. In the middle of starting a thread it would leave a lock of
    Python's own library locked, and the program would wait for it for ever. In the middle of a
    query it would leave the database locked. A second signal of the same kind does not wait.
    """
    signals = DeferredSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # handlers run in the main thread only
        return
    signals.defer()
    try:
        yield signals
    finally:
        signals.deliver()
