"""One WebSocket client: PCM in binary messages in, events as JSON out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import aclosing
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Pace, Refused
from deltakwt.serve.sound import SoundBuffer, check_format, decode

POLICY = 1008  # the close code for a client that broke a rule


class Listener:
    """One WebSocket."""

    def __init__(self, hub: Hub, name: str, web: WebSocket) -> None:
        self.hub, self.name, self.web = hub, name, web
        self._pace = Pace(hub.limits.ahead)
        self._buffer = SoundBuffer(hub.limits.buffered)
        self._seconds = 0.0
        self._found = 0

    async def run(self, about: dict[str, Any]) -> None:
        """Send events until the stream ends or the client is refused."""
        try:
            self._kind, self._rate, self._channels = self._format()
            names = self.web.query_params.get("words")
            self._words = self.hub.check_words(names.split(",") if names else None)
            await self._send({"type": "ready", **about})
            async with asyncio.TaskGroup() as tasks:
                finding = tasks.create_task(self._find())
                await self._read()
                await finding
            seconds = round(self._seconds, 3)
            await self._send({"type": "end", "seconds": seconds, "words": self._found})
            await self.web.close()
        except* Refused as group:
            refused = group.exceptions[0]
            assert isinstance(refused, Refused)
            self.hub.refuse(self.name, refused)
            with contextlib.suppress(Refused, WebSocketDisconnect, RuntimeError):
                await self._send({"type": "error", "error": refused.code, "message": str(refused)})
                await self.web.close(POLICY, refused.code)
        except* WebSocketDisconnect:  # the client left
            pass

    def _format(self) -> tuple[str, int, int]:
        query = self.web.query_params
        rate, channels = query.get("rate", "16000"), query.get("channels", "1")
        if not (rate.isdecimal() and channels.isdecimal() and len(rate + channels) < 12):
            raise Refused("bad-audio", "rate and channels: must be whole numbers")
        return check_format(query.get("format", "s16"), int(rate), int(channels))

    async def _read(self) -> None:
        while True:
            await asyncio.sleep(0)  # others get their turn, however many messages wait here
            message = await self._receive()
            if message.get("text") == "end":
                await self._buffer.end()
                return
            data = message.get("bytes")
            if data is None:
                raise Refused("bad-message", 'send PCM in binary messages, or the text "end"')
            block = decode(data, self._kind, self._channels)
            self._pace.add(len(block) / self._rate)
            self._seconds += len(block) / self._rate
            await self._buffer.put(block, self._rate)

    async def _receive(self) -> dict[str, Any]:
        idle = self.hub.limits.idle
        try:
            async with asyncio.timeout(idle or None):
                message = await self.web.receive()
        except TimeoutError:
            raise Refused("idle", f"no message for {idle:g} s") from None
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        if "refused" in message:  # by the connection: see protocols.py
            raise message["refused"]
        return dict(message)

    async def _find(self) -> None:
        def wanted(word: str) -> bool:
            return self._words is None or word in self._words

        async with aclosing(self.hub.find(self.name, self._buffer, wanted)) as events:
            async for event in events:
                self._found += 1
                await self._send({"type": "word", **event})

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self.hub.limits.stall):
                await self.web.send_text(json.dumps(message))
        except TimeoutError:
            raise Refused("stall", "the client does not read its answers") from None
