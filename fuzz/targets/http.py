"""The answers of a web server to a download. The input is one answer for each connection."""

from __future__ import annotations

import io
import ssl
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from unittest.mock import patch

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.download import fetch

NEXT = b"\n--next--\n"  # between two answers
LIMIT = 4096
CONTEXT = ssl.create_default_context()  # takes long to make, and is not used
URL = "https://models.example/a.bin"


class Connection:
    """A socket whose other end has sent its whole answer already."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._answer))  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:  # sendall, setsockopt, close
        return lambda *arguments: None


def read(data: bytes, folder: Path) -> None:
    """Download; afterwards there is a file that was verified, or at most a part of it."""
    answers = iter(data.split(NEXT))
    target, part = folder / "a.bin", folder / "a.bin.part"

    def connect(address: tuple[str, int], *_: object) -> Connection:
        if (answer := next(answers, None)) is None:
            raise ConnectionRefusedError("no more answers")
        return Connection(answer)

    def verify(path: Path) -> None:
        assert path.stat().st_size <= LIMIT
        if not path.read_bytes().startswith(b"model"):
            raise DeltakwtError(f"{path}: not the expected file")

    try:
        with (
            patch("socket.create_connection", connect),
            patch("time.sleep", lambda seconds: None),
            patch.object(HTTPSConnection, "connect", HTTPConnection.connect),  # without TLS
            patch("ssl._create_default_https_context", lambda: CONTEXT),
        ):
            fetch(URL, target, limit=LIMIT, verify=verify, progress=lambda done, total: None)
        assert target.read_bytes().startswith(b"model")
        assert not part.exists()
    except DeltakwtError:
        assert not target.exists()
        raise
    finally:
        part.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
