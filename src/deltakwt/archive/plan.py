"""The files of a search and its work folder: which shard has which files, and which are done.

A search that writes `events.parquet` works in the folder `events.parquet.part`:

    plan.json     model, setting and inputs; a search goes on only if they are the same
    files.jsonl   one line per shard: its files and their sizes in bytes
    00000.jsonl   the rows of a finished shard; it appears under this name when it is complete

The folder is removed when the result has been written.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from deltakwt.audio import SOUND_SUFFIXES
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import open_regular, read_json, write_atomically
from deltakwt.locks import locked

VERSION = 1
SHARD_FILES = 32
SHARD_BYTES = 64 << 20  # an interrupted run repeats at most one shard per worker

MAX_PATH_BYTES = 1 << 14

Document = dict[str, Any]


@dataclass(frozen=True)
class Shard:
    """Some files that are searched together."""

    number: int
    files: tuple[str, ...]
    bytes: int


class Work:
    """The work folder of one result."""

    def __init__(self, out: Path) -> None:
        self.folder = out.with_name(out.name + ".part")
        self.shards = self.files = self.bytes = 0

    @contextmanager
    def opened(self, identity: Document, files: Iterable[str]) -> Iterator[Work]:
        """Make the folder, or continue in the one that is there; no second search may use it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                self._prepare(identity, files)
                yield self
        except OSError as error:
            where = error.filename or self.folder
            raise DeltakwtError(f"{where}: cannot be written: {error.strerror}") from error

    def _prepare(self, identity: Document, files: Iterable[str]) -> None:
        plan = self.folder / "plan.json"
        if plan.exists():
            found = read_json(plan)
            if found["identity"] != json.loads(json.dumps(identity)):
                raise DeltakwtError(
                    f"{self.folder}: belongs to a search with another model, setting or input;"
                    " remove it or choose another --out"
                )
        else:
            found = {"identity": identity, **self._write_shards(files)}
            write_atomically(plan, json.dumps(found).encode())
        self.shards, self.files, self.bytes = found["shards"], found["files"], found["bytes"]

    def _write_shards(self, files: Iterable[str]) -> Document:
        """Write the list of all shards, one line each, and return how much there is to do."""
        totals = {"shards": 0, "files": 0, "bytes": 0}
        unfinished = self.folder / "files.unfinished"
        with unfinished.open("w", encoding="ascii") as lines:
            for shard in _shards(files):
                lines.write(json.dumps([shard.bytes, *shard.files]) + "\n")
                totals["shards"] += 1
                totals["files"] += len(shard.files)
                totals["bytes"] += shard.bytes
        unfinished.replace(self.folder / "files.jsonl")
        return totals

    def planned(self) -> Iterator[Shard]:
        """Yield every shard. Only one of them is in memory."""
        with (self.folder / "files.jsonl").open(encoding="ascii") as lines:
            for number, line in enumerate(lines):
                size, *files = json.loads(line)
                yield Shard(number, tuple(files), size)

    def path(self, number: int) -> Path:
        """Return the file for the rows of a shard."""
        return self.folder / f"{number:05d}.jsonl"

    def is_done(self, shard: Shard) -> bool:
        """Return whether the rows of a shard have been written."""
        return self.path(shard.number).exists()

    def finish(self, shard: Shard, rows: list[Document]) -> None:
        """Write the rows of a shard, all of them or none."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_atomically(self.path(shard.number), text.encode())

    def rows(self, number: int) -> list[Document]:
        """Return the rows of a finished shard."""
        with self.path(number).open(encoding="ascii") as lines:
            return [json.loads(line) for line in lines]

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _shards(files: Iterable[str]) -> Iterator[Shard]:
    number, size, held = 0, 0, list[str]()
    for file in files:
        held.append(file)
        size += _size(file)
        if len(held) == SHARD_FILES or size >= SHARD_BYTES:
            yield Shard(number, tuple(held), size)
            number, size, held = number + 1, 0, []
    if held:
        yield Shard(number, tuple(held), size)


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except (OSError, ValueError):  # it becomes a row with an error
        return 0


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
            if Path(name).suffix.lower() in SOUND_SUFFIXES:
                yield os.path.join(path, name)


def _lines(source: str, file: BinaryIO) -> Iterator[str]:
    number = 0
    while line := file.readline(MAX_PATH_BYTES + 1):
        number += 1
        if len(line) > MAX_PATH_BYTES:
            raise DeltakwtError(f"{source}: line {number}: longer than {MAX_PATH_BYTES} bytes")
        if name := line.rstrip(b"\r\n"):
            yield os.fsdecode(name)
