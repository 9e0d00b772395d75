"""The server of `deltakwt explore`: the page, for the browser of this user on this machine only.

It listens on 127.0.0.1. Every address begins with a random token, so that no other page and no
other user of the machine can read anything; the name of the host must be the one that was opened,
so that a foreign name cannot be pointed here. It answers GET only, and only for the files of the
page: there is no path from an address to the file system.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any, Protocol

from deltakwt.core.errors import DeltakwtError
from deltakwt.explore.site import TYPES, Site

HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
IDLE_SECONDS = 30  # for a request to arrive


class Live(Protocol):
    """Where the sound of `--live` comes from."""

    def follow(self) -> Iterator[bytes]:
        """Yield 16-bit little-endian samples of 16 kHz as they come."""


class Server(ThreadingHTTPServer):
    """Serves a site below a random path of a random port."""

    daemon_threads = True

    def __init__(self, site: Site, live: Live | None = None) -> None:
        self.site, self.live = site, live
        self.token = secrets.token_urlsafe(24)
        super().__init__((HOST, 0), Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, *_: Any) -> None:
        """A browser that closes a connection early is no error."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "deltakwt", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        """Send a file of the page, or the live sound."""
        if self.headers.get("Host") != f"{HOST}:{self.server.server_port}":
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        token, slash, name = self.path.removeprefix("/").partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND)
        if name == "live" and self.server.live is not None:
            return self._stream(self.server.live)
        name = name or "index.html"
        read = self.server.site.files.get(name)
        if read is None:
            return self._refuse(HTTPStatus.NOT_FOUND)
        try:
            data = read()
        except DeltakwtError as error:
            return self._send(HTTPStatus.UNPROCESSABLE_ENTITY, str(error).encode(), "text/plain")
        return self._send(HTTPStatus.OK, data, TYPES[PurePosixPath(name).suffix])

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, status.phrase.encode(), "text/plain")

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self.send_response(status)
        self._send_headers(kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        for name, value in HEADERS.items():
            self.send_header(name, value)

    def _stream(self, live: Live) -> None:
        """Send sound as it comes, until it ends or the browser leaves."""
        self.send_response(HTTPStatus.OK)
        self._send_headers("application/octet-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for part in live.follow():
            self.wfile.write(part)
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no log: addresses hold the token."""
