r"""A request to `deltakwt serve http`, given to its application in this process.

The input is `METHOD PATH`, header lines, an empty line and a body. The method `LISTEN` opens a
WebSocket; its messages are separated by `\n--next--\n`, and those that begin with `T` are text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from deltakwt.core.config import Config
from deltakwt.core.model import load
from deltakwt.serve.http import HttpServer
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Limits
from deltakwt.weights.folder import Weights, random_tensors, save_folder

NEXT = b"\n--next--\n"
SMALL = Config(dim=2, heads=1, mlp=2, layers=1, labels=("_silence_", "yes", "no"))
EXPECTED = {200, 400, 401, 403, 404, 405, 408, 413, 503}


@cache
def server() -> tuple[asyncio.AbstractEventLoop, HttpServer]:
    """Return the application with a very small model, and the loop that runs it."""
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        save_folder(Path(folder), Weights(SMALL, random_tensors(SMALL)))
        model = load(folder)
    hub = Hub(lambda: model, Limits(body=1 << 14, stall=5, seconds=5, idle=5), threads=1)
    return asyncio.new_event_loop(), HttpServer(hub)


def read(data: bytes, folder: Path) -> None:
    """Send one request and check that the answer is complete and is no internal error."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, path = first.partition(b" ")
    path, _, query = path.partition(b"?")
    pairs = [line.partition(b":") for line in lines]
    scope = {
        "http_version": "1.1",
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": [(name.strip().lower(), value.strip()) for name, _, value in pairs],
        "extensions": {"websocket.http.response": {}},
        "state": {},
    }
    if method == b"LISTEN":
        sent = _talk({**scope, "type": "websocket", "subprotocols": []}, body.split(NEXT))
    else:
        name = method.decode("latin-1").upper()
        parts = [body[: len(body) // 2], body[len(body) // 2 :]]
        sent = _talk({**scope, "type": "http", "method": name}, parts)
    _check(sent)


def _talk(scope: dict[str, Any], parts: list[bytes]) -> list[dict[str, Any]]:
    """Run the application on one connection and return what it sends."""
    loop, application = server()
    sent: list[dict[str, Any]] = []
    if scope["type"] == "http":
        waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        waiting[-1]["more_body"] = False
        waiting.append({"type": "http.disconnect"})
    else:
        waiting = [{"type": "websocket.connect"}]
        for part in parts:
            is_text = part[:1] == b"T"
            content = part[1:].decode("utf-8", "replace") if is_text else part
            waiting.append({"type": "websocket.receive", "text" if is_text else "bytes": content})
        waiting.append({"type": "websocket.disconnect", "code": 1000})

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    loop.run_until_complete(application.app(scope, receive, send))
    assert application.hub.clients == 0
    return sent


def _check(sent: list[dict[str, Any]]) -> None:
    for message in sent:
        if "status" in message:
            assert message["status"] in EXPECTED, message
            assert not any(b"\n" in value or b"\r" in value for _, value in message["headers"])
        if message["type"] == "websocket.send":
            assert json.loads(message["text"])["type"]
    assert sent
