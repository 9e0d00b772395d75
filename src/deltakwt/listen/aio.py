"""`AsyncSpotter`: the words of a stream in asyncio programs, without blocking the event loop.

The model runs in a worker thread. A stream is read from an async iterator, an `asyncio.Queue` or
an ordinary iterator such as `deltakwt.microphone()`, which is then read in a worker thread too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import SettingLike
from deltakwt.listen.decision import Decision
from deltakwt.listen.spotter import KEPT_SECONDS, Spotter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from deltakwt.listen.decision import Event
    from deltakwt.listen.spotter import Verify

# A block is an array of samples, or a pair of such an array and its sample rate in Hz.
Block = Any
Source = AsyncIterable[Block] | Iterable[Block] | asyncio.Queue[Block]
T = TypeVar("T")

_END = object()  # marks the end of the source


class AsyncSpotter:
    """Finds the words in one stream, asynchronously.

    `async for event in AsyncSpotter(model, source)` yields events until the source ends. A `None`
    in an `asyncio.Queue` ends it. Blocks without a rate of their own have `sample_rate`.
    `setting`, `decision`, `gate`, `verify` and `kept` are those of `Spotter`. `executor` runs the
    model; without it the event loop's default executor does. One model may serve many
    AsyncSpotters.
    """

    def __init__(
        self,
        model: Model,
        source: Source | None = None,
        *,
        sample_rate: int = SAMPLE_RATE,
        setting: SettingLike | None = None,
        decision: Decision | None = None,
        gate: Model | None = None,
        verify: Model | Verify | None = None,
        kept: float = KEPT_SECONDS,
        executor: Executor | None = None,
    ) -> None:
        self.spotter = Spotter(
            model, setting=setting, decision=decision, gate=gate, verify=verify, kept=kept
        )
        self._source, self._rate, self._executor = source, sample_rate, executor
        self._blocks: AsyncIterator[Block] | None = None
        self._ready: deque[Event] = deque()
        self._turn = asyncio.Lock()  # a Spotter is used by one thread at a time
        self._running: asyncio.Future[Any] | None = None
        self._ended = False

    async def push(self, block: ArrayLike, sample_rate: int | None = None) -> list[Event]:
        """Process the next block and return the words that it completes.

        A block with NaN or infinity raises `DeltakwtError` and is left out.
        """
        rate = self._rate if sample_rate is None else sample_rate
        return await self._work(self.spotter.push, block, rate)

    async def flush(self) -> list[Event]:
        """End the stream and return the words of its last second."""
        return await self._work(self.spotter.flush)

    async def run(self, on_event: Callable[[Event], object]) -> None:
        """Call `on_event` with each event until the source ends. It may be a coroutine function."""
        async for event in self:
            result = on_event(event)
            if inspect.isawaitable(result):
                await result

    def stop(self) -> None:
        """End the stream: blocks that come later are not processed."""
        self.spotter.stop()
        self._ended = True

    async def close(self) -> None:
        """Stop, wait for the worker thread, and close the source."""
        self.stop()
        async with self._turn:
            await self._idle()
        close = getattr(self._blocks, "aclose", None)
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        if self._source is None:
            raise DeltakwtError("AsyncSpotter: give a source to iterate over, or call push()")
        return self

    async def __anext__(self) -> Event:
        if self._blocks is None:
            self._blocks = _blocks(self._source, self._executor)
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                block = await anext(self._blocks)
            except StopAsyncIteration:
                self._ended = True
                self._ready.extend(await self.flush())
                continue
            if self._ended:  # stop() was called while the source was waited for
                raise StopAsyncIteration
            self._ready.extend(
                await (self.push(*block) if isinstance(block, tuple) else self.push(block))
            )
        return self._ready.popleft()

    async def _work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in the worker thread, after the one that may still run there.

        A cancelled task does not end its thread, so the next caller waits for it.
        """
        async with self._turn:
            await self._idle()
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._executor, function, *arguments)
            self._running = running
            return await asyncio.shield(running)

    async def _idle(self) -> None:
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])


def _blocks(source: Source | None, executor: Executor | None) -> AsyncIterator[Block]:
    """Return an async iterator over any kind of source."""
    if isinstance(source, asyncio.Queue):
        return _from_queue(source)
    if isinstance(source, AsyncIterable):
        return aiter(source)
    if isinstance(source, Iterable):
        return _from_iterator(iter(source), executor)
    raise DeltakwtError(
        f"AsyncSpotter: {type(source).__name__} is not a source; give an async iterator,"
        " an asyncio.Queue or an iterator of blocks"
    )


async def _from_queue(queue: asyncio.Queue[Block]) -> AsyncIterator[Block]:
    while (block := await queue.get()) is not None:
        yield block


async def _from_iterator(
    blocks: Iterator[Block], executor: Executor | None
) -> AsyncIterator[Block]:
    """Read a blocking iterator in a worker thread, and close it there when it is left early."""
    loop = asyncio.get_running_loop()
    pending: Awaitable[Block] | None = None
    try:
        while True:
            pending = loop.run_in_executor(executor, next, blocks, _END)
            block = await asyncio.shield(pending)
            pending = None
            if block is _END:
                return
            yield block
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            if pending is not None:  # a generator cannot be closed while it runs
                await asyncio.wait([asyncio.ensure_future(pending)])
            await loop.run_in_executor(executor, close)
