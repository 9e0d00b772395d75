"""A server as a system service: signals, logs, and messages to systemd (sd_notify, watchdog)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("deltakwt.serve")


def log(message: str, level: str = "info", **fields: Any) -> None:
    """Write one log line with named values; an error also shows its traceback."""
    is_error = level == "error"
    number = getattr(logging, level.upper())
    LOGGER.log(number, message, extra={"fields": fields}, exc_info=is_error)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "timestamp": _stamp(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class TextFormatter(logging.Formatter):
    """One line of text; values are quoted, so that foreign text cannot break the line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        values = "".join(f" {name}={json.dumps(value)}" for name, value in fields.items())
        line = f"{_stamp(record)} {record.levelname.lower()} {record.getMessage()}{values}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _stamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def start_logging(as_json: bool) -> None:
    """Send all log lines to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def notify(state: str) -> bool:
    """Send a state such as "READY=1" to systemd; return whether there is one to send it to."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(state.encode(), address)
        except OSError:  # a service manager that went away must not end the service
            return False
    return True


def watchdog_seconds() -> float | None:
    """Return the time in which systemd expects a watchdog message, or None."""
    pid = os.environ.get("WATCHDOG_PID")
    if pid is not None and pid != str(os.getpid()):
        return None
    try:
        seconds = int(os.environ["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return None
    return seconds if seconds > 0 else None


async def _watchdog(seconds: float, alive: Callable[[], Awaitable[object]]) -> None:
    """Report to systemd twice in that time that event loop and worker threads are alive."""
    while True:
        await alive()
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds / 2)


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

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGHUP, start_reload)
    if seconds := watchdog_seconds():
        tasks.add(loop.create_task(_watchdog(seconds, alive)))
    try:
        yield stop
    finally:
        notify("STOPPING=1")
        for task in tasks:  # the signals stay handled until the loop ends, so that none kills us
            task.cancel()
