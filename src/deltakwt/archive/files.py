"""The files of an archive: those below folders, in lists, or named one by one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from deltakwt.core.errors import DeltakwtError
from deltakwt.files import open_regular

# What libsndfile reads, by the usual suffixes. A file that is named itself may have any.
SUFFIXES = (
    *(".aif", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64"),
    *(".snd", ".w64", ".wav", ".wave"),
)
MAX_PATH_BYTES = 1 << 14


def find_files(inputs: Iterable[str]) -> Iterator[str]:
    """Yield every file that the inputs mean, each folder in the order of its sorted names.

    A folder means the sound files below it. A `.txt` file is a list of paths, one per line; "-" is
    such a list on stdin. Links to folders are not followed, so the walk always ends.
    """
    for name in inputs:
        if name == "-":
            yield from _lines("stdin", sys.stdin.buffer)
        elif os.path.isdir(name):
            yield from _below(name)
        elif name.endswith(".txt"):
            with open_regular(name) as file:
                yield from _lines(name, file)
        else:
            yield name  # if it cannot be read, it becomes a row with an error


def _below(folder: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise DeltakwtError(f"{error.filename}: cannot be listed: {error.strerror}") from error

    for path, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(names):
            if Path(name).suffix.lower() in SUFFIXES:
                yield os.path.join(path, name)


def _lines(source: str, file: BinaryIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_PATH_BYTES + 1):
        number += 1
        if len(line) > MAX_PATH_BYTES:
            raise DeltakwtError(f"{source}: line {number}: longer than {MAX_PATH_BYTES} bytes")
        if name := line.rstrip(b"\r\n"):
            yield os.fsdecode(name)
