"""The Wyoming server: wake word detection for Home Assistant and other clients of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.info import Attribution, Describe, Info, WakeModel, WakeProgram
from wyoming.ping import Ping, Pong
from wyoming.wake import Detect, Detection, NotDetected

import deltakwt
from deltakwt.logs import log, notify
from deltakwt.serve.hub import Hub
from deltakwt.serve.limits import Pace, Refused
from deltakwt.serve.messages import HEADER, read_message
from deltakwt.serve.service import close_socket, is_local, open_socket, service
from deltakwt.serve.sound import SoundBuffer, check_format, decode
from deltakwt.text import wall_time

KIND_OF_WIDTH = {1: "u8", 2: "s16", 3: "s24", 4: "s32"}  # width: bytes per sample
GRACE = 5.0  # seconds that clients have when the server stops
LINGER = 1.0  # seconds that a refused client has to read why


class ClientStream:
    """The sound between audio-start and audio-stop."""

    def __init__(self, limit: int, words: frozenset[str] | None, start: object) -> None:
        self.buffer, self.words = SoundBuffer(limit), words
        self.start = start if type(start) is int else None  # timestamp of the first sample, ms
        self.seconds = 0.0  # of sound that was received

    def wants(self, word: str) -> bool:
        """Return whether the client asked for this word."""
        return self.words is None or word in self.words

    def timestamp(self, seconds: float) -> int:
        """Return a time of this stream in the client's milliseconds."""
        return (self.start or 0) + round(1000 * seconds)


class Client:
    """One connection."""

    def __init__(
        self, hub: Hub, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.hub, self.name, self.reader, self.writer = hub, name, reader, writer
        self._pace = Pace(hub.limits.ahead)
        self._words: frozenset[str] | None = None
        self._stream: ClientStream | None = None
        self._finding: asyncio.Task[None] | None = None  # the words of the stream
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Answer messages until the client leaves or is refused."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while message := await read_message(self.reader, self.hub.limits):
                    await self._take(message, tasks)
                    await asyncio.sleep(0)  # others get their turn, however many messages wait
                await self._end_stream()  # a client that only closed its sending side gets the rest
        except* Refused as group:
            refused = group.exceptions[0]
            assert isinstance(refused, Refused)
            self.hub.refuse(self.name, refused)
            await self.leave(refused)
        except* OSError:  # the client is gone
            pass

    async def send(self, event: Event) -> None:
        """Write a message; refuse a client that does not read."""
        async with self._writing:
            try:
                async with asyncio.timeout(self.hub.limits.stall):
                    await async_write_event(event, self.writer)
            except TimeoutError:
                self.writer.transport.abort()
                raise Refused("stall", "the client does not read its answers") from None

    async def _take(self, message: Event, tasks: asyncio.TaskGroup) -> None:
        kind = message.type
        if AudioChunk.is_type(kind):
            await self._take_sound(message, tasks)
            return
        self._pace.add()
        if Describe.is_type(kind):
            await self.send(info(self.hub).event())
        elif Detect.is_type(kind):
            self._words = self.hub.check_words(message.data.get("names"))
            if self._stream is not None:
                self._stream.words = self._words
        elif AudioStart.is_type(kind):
            await self._end_stream()
            self._start_stream(message.data.get("timestamp"), tasks)
        elif AudioStop.is_type(kind):
            await self._end_stream()
        elif Ping.is_type(kind):
            text = message.data.get("text")
            await self.send(Pong(text if isinstance(text, str) else None).event())
        # The protocol asks servers to ignore messages that they do not know.

    async def _take_sound(self, message: Event, tasks: asyncio.TaskGroup) -> None:
        width, data = message.data.get("width"), message.data
        if type(width) is not int or width not in KIND_OF_WIDTH:
            raise Refused("bad-audio", f"width {width!r}: must be 1, 2, 3 or 4 bytes")
        kind, rate, channels = check_format(
            KIND_OF_WIDTH[width], data.get("rate"), data.get("channels")
        )
        block = decode(message.payload or b"", kind, channels)
        self._pace.add(len(block) / rate)
        stream = self._stream or self._start_stream(data.get("timestamp"), tasks)
        if stream.start is None and type(data.get("timestamp")) is int:
            stream.start = data["timestamp"] - round(1000 * stream.seconds)
        stream.seconds += len(block) / rate
        await stream.buffer.put(block, rate)

    def _start_stream(self, timestamp: object, tasks: asyncio.TaskGroup) -> ClientStream:
        stream = ClientStream(self.hub.limits.buffered, self._words, timestamp)
        self._stream, self._finding = stream, tasks.create_task(self._find(stream))
        return stream

    async def _end_stream(self) -> None:
        """Wait until all sound of the stream is processed and answered."""
        if self._stream is not None and self._finding is not None:
            await self._stream.buffer.end()
            await self._finding
        self._stream = self._finding = None

    async def _find(self, stream: ClientStream) -> None:
        found = False
        async with aclosing(self.hub.find(self.name, stream.buffer, stream.wants)) as events:
            async for event in events:
                found = True
                message = Detection(event.pop("label"), stream.timestamp(event["time"])).event()
                message.data |= event
                await self.send(message)
        if not found:
            message = NotDetected().event()
            end = stream.timestamp(stream.seconds)
            message.data |= {"timestamp": end, "wall_time": wall_time()}
            await self.send(message)

    async def leave(self, error: Refused) -> None:
        """Send the client the reason of its refusal, and give it the time to read that.

        What it still sends is read and dropped: closing a connection with unread data would
        make the system throw our answer away.
        """
        with contextlib.suppress(Refused, OSError, TimeoutError):
            await self.send(Error(error.text, error.code).event())
            self.writer.write_eof()
            async with asyncio.timeout(LINGER):
                while await self.reader.read(HEADER):
                    pass


def info(hub: Hub) -> Info:
    """Return what the server offers: every word of a model is a wake word."""
    owners = hub.owners
    source = Attribution("deltakwt", "")  # it has no public page yet
    models = [
        WakeModel(
            name=label,
            attribution=source,
            installed=True,
            description=f"{label} ({Path(owners[label].name).name})",
            version=deltakwt.__version__,
            languages=["en"],
            phrase=label,
        )
        for label in hub.labels
    ]
    program = WakeProgram(
        name="deltakwt",
        attribution=source,
        installed=True,
        description="Keyword spotting whose compute follows the sound",
        version=deltakwt.__version__,
        models=models,
    )
    return Info(wake=[program])


class WyomingServer:
    """Listens on a tcp:// or unix:// address and serves every client in a task of its own."""

    def __init__(self, hub: Hub, uri: str) -> None:
        self.hub, self.uri = hub, uri
        self._socket = open_socket(uri)
        self._clients: set[asyncio.Task[None]] = set()
        self._count = 0

    @property
    def port(self) -> int:
        """Return the TCP port, which the system chose if the address said 0."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Begin to accept clients."""
        if not is_local(self._socket):
            log("open to the network, and Wyoming has no password", "warning", uri=self.uri)
        is_unix = self._socket.family == socket.AF_UNIX
        start = asyncio.start_unix_server if is_unix else asyncio.start_server
        self._server = await start(self._serve, sock=self._socket, limit=HEADER)
        log("ready", uri=self.uri, **self.hub.describe())

    async def stop(self) -> None:
        """Close the address and all connections."""
        self._server.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=GRACE)
        close_socket(self._socket, self.uri)
        log("stopped")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self._count += 1
        client = Client(self.hub, f"wyoming-{self._count}", reader, writer)
        try:
            with self.hub.client(client.name):
                await client.run()
        except Refused as refused:  # there are too many clients
            await client.leave(refused)
        except asyncio.CancelledError:  # the server stops
            pass
        except Exception:  # a bug must not end the server
            log("unexpected error", level="error", client=client.name)
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1)


@contextlib.asynccontextmanager
async def serving(hub: Hub, uri: str) -> AsyncIterator[WyomingServer]:
    """Run a server while the block runs."""
    server = WyomingServer(hub, uri)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def run(hub: Hub, uri: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with service(hub.alive, hub.reload) as stop, serving(hub, uri):
        notify("READY=1")
        await stop.wait()
    hub.close()
