"""HTTP and WebSocket connections with limits that uvicorn itself does not have.

uvicorn waits for as long as a client likes for the headers of a request and for the rest of a
WebSocket message, and it answers any number of pings. Here such clients are refused.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import Event
from websockets.server import ServerProtocol

from deltakwt.serve.limits import Limits, Pace, Refused

HEADERS = 10  # seconds in which the headers of a request must arrive
LINGER = 1.0  # seconds that a refused client has to read why
READ = 4096  # bytes of frames that are taken at once; other clients wait so long


class BoundedHttp(H11Protocol):
    """HTTP/1.1 that hangs up on clients whose request does not begin in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def _expect_request(self) -> None:
        self.loop.call_later(HEADERS, self._hang_up_unless_after, self.cycle)

    def _hang_up_unless_after(self, last: object) -> None:
        is_waiting = self in self.connections and self.cycle is last
        if is_waiting and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


class CountedFrames(ServerProtocol):
    """The frames of a WebSocket, with a count of what the application does not see."""

    unfinished = 0  # bytes of a frame that has not arrived as a whole
    extra = 0  # frames that were no message of their own: pings, pongs and continuations

    def receive_data(self, data: bytes | bytearray) -> None:
        """Take bytes of the client."""
        self.unfinished += len(data)
        super().receive_data(data)

    def events_received(self) -> list[Event]:
        """Return the request and the frames that have arrived as a whole."""
        events = super().events_received()
        for event in events:
            if isinstance(event, Frame):
                length = len(event.data)
                self.unfinished -= 6 + length + (0 if length < 126 else 2 if length < 65536 else 8)
                self.extra += event.opcode in (Opcode.PING, Opcode.PONG, Opcode.CONT)
            else:
                self.unfinished = 0
        return events


class BoundedWebSocket(WebSocketsSansIOProtocol, asyncio.BufferedProtocol):
    """A WebSocket that reads little at once and refuses half messages and floods of frames.

    The application gets a refusal in the place of the next message, under the name "refused".
    """

    limits = Limits()
    conn: CountedFrames

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = CountedFrames(max_size=self.config.ws_max_size, logger=self.logger)
        self._space = bytearray(READ)
        self._pace = Pace(self.limits.ahead or Limits.ahead)
        self._waiting: asyncio.TimerHandle | None = None  # for the rest of a message
        self._refused = False

    def get_buffer(self, _sizehint: int) -> bytearray:
        """Return the memory for the next bytes of the client."""
        return self._space

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that are in the memory now."""
        self.data_received(bytes(self._space[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of a client that was refused are dropped."""
        if self._refused:
            return
        super().data_received(data)
        try:
            for _ in range(self.conn.extra):
                self._pace.add()
        except Refused as refused:
            self._refuse(refused)
        self.conn.extra = 0
        if self._waiting is None and (self.conn.unfinished > 0 or self.frames):
            self._wait()

    def send_receive_event_to_app(self) -> None:
        """Pass a whole message on."""
        self._stop_waiting()
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self._refuse(Refused("bad-message", "a text message is not UTF-8"))
                return
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        """Return the next message. While messages waited for this, nothing more was read."""
        message = await super().receive()
        if self._waiting is not None:
            self._stop_waiting()
            self._wait()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.limits.stall, self._stall)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _stall(self) -> None:
        if self.read_paused:  # we are the slow one
            self._wait()
        else:
            text = f"a message took longer than {self.limits.stall:g} s"
            self._refuse(Refused("stall", text))

    def _refuse(self, refused: Refused) -> None:
        self._refused, self.frames = True, []
        self.close_timeout = LINGER
        self._stop_waiting()
        message: Any = {"type": "websocket.receive", "refused": refused}
        self.queue.put_nowait(message)
