"""A server as a system service: its listening socket, signals, and the watchdog of systemd.

The address of a server is tcp://HOST:PORT or unix:///PATH.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlparse

from deltakwt.core.errors import DeltakwtError
from deltakwt.logs import notify, watchdog_seconds

BACKLOG = 128


class CannotListen(DeltakwtError):
    """The address is in use or not allowed: the run failed, and another attempt may succeed."""

    exit_code = 1


def parse_uri(uri: str) -> tuple[str, int] | Path:
    """Return host and port, or the path of a Unix socket."""
    parsed = urlparse(uri)
    try:
        port = parsed.port
    except ValueError:
        port = None
    if parsed.scheme == "tcp" and parsed.hostname and port is not None:
        return parsed.hostname, port
    if parsed.scheme == "unix" and parsed.path and not parsed.netloc:
        return Path(parsed.path)
    raise DeltakwtError(f"--uri {uri!r}: give tcp://HOST:PORT or unix:///PATH")


def open_socket(uri: str) -> socket.socket:
    """Return a socket that listens on the address."""
    where = parse_uri(uri)
    try:
        if isinstance(where, Path):
            return _open_unix(where)
        family, _, _, _, address = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(f"{uri}: cannot be opened: {error.strerror or error}") from None


def _open_unix(path: Path) -> socket.socket:
    """Open a Unix socket in the place of one that a dead server left behind, but of no other."""
    if path.exists():
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise DeltakwtError(f"--uri: {path} exists and is not a socket")
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise CannotListen(f"--uri: another server listens on {path}")
        path.unlink()
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.bind(str(path))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def close_socket(opened: socket.socket, uri: str) -> None:
    """Close a socket of `open_socket` and remove its file."""
    opened.close()
    where = parse_uri(uri)
    if isinstance(where, Path):
        where.unlink(missing_ok=True)


def is_local(opened: socket.socket) -> bool:
    """Return whether only this machine can reach the socket."""
    if opened.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(opened.getsockname()[0]).is_loopback


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
    each watchdog message: a service that hangs sends none, and systemd restarts it.
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
