"""Locks of folders: two runs never write into the same folder.

The lock is held on the folder itself (`flock`), so no lock file is left behind, and the system
releases it when a process ends, however it ends. On a file system without such locks (some network
file systems) nothing is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltakwt.core.errors import DeltakwtError

_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class FolderInUse(DeltakwtError):
    """Another run is writing into the folder. The input is right, so the exit code is 1."""

    exit_code = 1


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an existing folder. If another run holds it, raise `FolderInUse`, or `wait` for it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _HELD:
                raise FolderInUse(
                    f"{folder}: another run is writing into this folder; wait for its end or"
                    " choose another folder"
                ) from None
        yield
    finally:
        os.close(descriptor)
