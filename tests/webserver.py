"""A web site on this machine that can misbehave."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """A web site on this machine: content by path, and how it misbehaves."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: int | None = None  # bytes of a response before the line drops, once
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.site.requests.append((self.path, wanted))
        # Taken before anything is answered: a client that has its answer may ask for the next cut.
        cut, self.site.cut_after = self.site.cut_after, None
        content = self.site.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        found = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        if found and self.site.ranges:
            start = int(found[1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][:cut])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve() -> Iterator[Site]:
    """A server on 127.0.0.1 for as long as the block runs."""
    made = Site()
    handler = type("Handler", (_Handler,), {"site": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
