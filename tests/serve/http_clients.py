"""Clients of the HTTP server: requests and WebSockets."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")
pytest.importorskip("websockets")

import httpx
import websockets
from websockets.asyncio.client import connect

from deltakwt.serve.hub import Hub

TOKEN = "a-token-of-some-length"
Server = Callable[..., Any]


class Running:
    """A server in this process."""

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub, self.port = hub, port
        self.url = f"http://127.0.0.1:{port}"
        self.web = f"ws://127.0.0.1:{port}/v1/listen"


async def post(running: Running, body: Any, **options: Any) -> Any:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.post(f"{running.url}/v1/spot", content=body, **options)


async def get(running: Running, path: str, **options: Any) -> Any:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.get(running.url + path, **options)


async def read(web: Any) -> list[Any]:
    """Return all messages that arrive before the connection is closed."""
    messages = []
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            messages.append(json.loads(await web.recv()))
    return messages


async def stream(running: Running, pcm: bytes, query: str = "", size: int = 3200) -> list[Any]:
    """Send a stream over a WebSocket and return all messages of the server."""
    async with connect(running.web + query) as web:
        for at in range(0, len(pcm), size):
            await web.send(pcm[at : at + size])
        await web.send("end")
        return await read(web)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def labels(messages: list[Any]) -> list[str]:
    return [message["label"] for message in messages if message.get("type") == "word"]
