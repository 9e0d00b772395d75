"""Bounded reading of untrusted files, and atomic writing.

Every reader accepts regular files only. A pipe, a device, or a link to one is refused before it is
opened, so reading never blocks and never grows without end. JSON is read strictly: limited size,
nesting and number of values; UTF-8; no NaN or infinity; no key twice. Every refusal is one
`DeltakwtError` that names the file.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

Found = TypeVar("Found")
AnyPath = str | os.PathLike[str]

MAX_JSON_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16  # of one line of a .jsonl file
MAX_DEPTH = 32
MAX_VALUES = 400_000  # bounds the memory of a parsed document to about 40 MB
MAX_DIGITS = 20  # of an integer; more digits do not fit 64 bits

# A string (closed or not, so that the scan stays linear), or one bracket.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def open_regular(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a regular file for reading, and refuse everything else without blocking."""
    try:
        _check_regular(path, os.stat(path).st_mode)
        # Another process may have replaced the file since: check what was really opened.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    with io.BufferedReader(_Readable(descriptor)) as file:
        _check_regular(path, os.fstat(descriptor).st_mode)
        try:
            yield file
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EAGAIN):
                raise
            raise _unreadable(path, error) from error


class _Readable(io.FileIO):
    """A file that can be read without waiting. Files in /proc may have nothing to read yet."""

    def readinto(self, buffer: Buffer, /) -> int:
        count: int = self._there(super().readinto(buffer))
        return count

    def readall(self) -> bytes:
        return self._there(super().readall())

    @staticmethod
    def _there(found: Found | None) -> Found:
        if found is None:
            raise BlockingIOError(errno.EAGAIN, "nothing to read")
        return found


def _check_regular(path: AnyPath, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise DeltakwtError(f"{os.fspath(path)}: not a file but a folder")
    if not stat.S_ISREG(mode):
        raise DeltakwtError(f"{os.fspath(path)}: not a regular file (a pipe, device or socket)")


def _unreadable(path: AnyPath, error: OSError | ValueError) -> DeltakwtError:
    if isinstance(error, FileNotFoundError):
        return DeltakwtError(f"{os.fspath(path)}: no such file")
    reason = error.strerror if isinstance(error, OSError) else error  # ValueError: a zero byte
    return DeltakwtError(f"{os.fspath(path)}: cannot be read: {reason}")


def read_bytes(path: AnyPath, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = file.read(limit + 1) if size <= limit else b""
        except OSError as error:
            raise _unreadable(path, error) from error
    if size > limit or len(content) > limit:  # files under /proc have size 0
        raise DeltakwtError(
            f"{os.fspath(path)}: too large: {max(size, len(content))} bytes, at most {limit}"
        )
    return content


def read_json(path: AnyPath, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file of at most `limit` bytes."""
    document = _parse(read_bytes(path, limit), os.fspath(path), limit)
    if not isinstance(document, dict):
        raise DeltakwtError(f"{os.fspath(path)}: must hold a JSON object")
    return document


def read_json_lines(path: AnyPath, limit: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the JSON object of every line of a file of at most `limit` bytes."""
    name = os.fspath(path)
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise DeltakwtError(f"{name}: too large: at most {limit} bytes")
        number, total = 0, 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number, total = number + 1, total + len(line)
            if len(line) > MAX_LINE_BYTES or total > limit:
                raise DeltakwtError(f"{name}: line {number}: too long")
            document = _parse(line, f"{name}: line {number}", MAX_LINE_BYTES)
            if not isinstance(document, dict):
                raise DeltakwtError(f"{name}: line {number}: must hold a JSON object")
            yield number, document


def _parse(content: bytes, where: str, limit: int) -> Any:
    if not content.isascii() and len(content) > max(limit // 4, MAX_LINE_BYTES):
        # One wide character makes Python use four bytes for every character of the file.
        raise DeltakwtError(f"{where}: too large: at most {limit // 4} bytes if not plain ASCII")
    try:
        _check_structure(content)
        text = content.decode("utf-8")
        document = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_short_integer,
            object_pairs_hook=_without_duplicates,
        )
        if _SURROGATE.search(content):  # half of a surrogate pair cannot be encoded again
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise DeltakwtError(f"{where}: not valid JSON: the text is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DeltakwtError(f"{where}: not valid JSON: {error}") from error
    return document


def _check_structure(content: bytes) -> None:
    """Refuse deep nesting and very many values before anything is parsed."""
    values = content.count(b",") + content.count(b"[") + content.count(b"{")
    if values > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    depth = 0
    for token in _TOKENS.finditer(content):
        first = content[token.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        elif first in b"]}":
            depth -= 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is too large")
    return int(text)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!r} appears twice")
    return document


@contextmanager
def writing(name: object) -> Iterator[None]:
    """Turn an OSError within the block into one line: `name` cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise DeltakwtError(f"{name}: cannot be written: {error.strerror}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside `path`, then rename: a reader sees the old file or the new one, never a part."""
    name = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            # The error names the wanted file, not the temporary one.
            error.filename, error.filename2 = os.fspath(path), None
        raise
