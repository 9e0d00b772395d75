"""A server as a system service: signals, and the watchdog of systemd."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from deltakwt.logs import notify, watchdog_seconds


async def _watchdog(seconds: float, alive: Callable[[], Awaitable[object]]) -> None:
    """Report to systemd twice in that time that event loop and worker threads are alive."""
    while True:
        await alive()
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds / 2)


def _on_signal(loop: asyncio.AbstractEventLoop, name: str, act: Callable[[], None]) -> None:
    """Let the loop call `act` upon a signal. Windows has no SIGHUP and no signals in its loop."""
    number = getattr(signal, name, None)
    if number is None:
        return
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(act))


@contextlib.asynccontextmanager
async def service(
    alive: Callable[[], Awaitable[object]], reload: Callable[[], Awaitable[None]]
) -> AsyncIterator[asyncio.Event]:
    """Handle signals and the watchdog while a server runs.

    Yields an event that SIGTERM and SIGINT set. SIGHUP awaits `reload`. `alive` is awaited before
    each sign of life: a service that hangs gives none and is restarted by systemd.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def reload_and_tell() -> None:
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        await reload()
        notify("READY=1")

    def start_reload() -> None:
        task = loop.create_task(reload_and_tell())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    _on_signal(loop, "SIGTERM", stop.set)
    _on_signal(loop, "SIGINT", stop.set)
    _on_signal(loop, "SIGHUP", start_reload)
    if seconds := watchdog_seconds():
        tasks.add(loop.create_task(_watchdog(seconds, alive)))
    try:
        yield stop
    finally:
        notify("STOPPING=1")
        for task in tasks:  # the signals stay handled until the loop ends, so that none kills us
            task.cancel()
