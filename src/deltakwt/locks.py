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


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the end of the block.

    Their handlers raise an exception. In the middle of starting a thread it would leave a lock of
    Python's own library locked, and the program would wait for it for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, note) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in came:
            signal.raise_signal(late)
