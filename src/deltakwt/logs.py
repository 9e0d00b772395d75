"""Log lines on stderr, and messages to systemd (sd_notify): what programs that run all day need."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from datetime import UTC, datetime
from typing import Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.text import one_line

LOGGER = logging.getLogger("deltakwt")


def log(message: str, level: str = "info", **fields: Any) -> None:
    """Write one log line with named values; an error also shows the traceback, if there is one."""
    is_error = level == "error" and sys.exc_info()[0] is not None
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
        message = one_line(record.getMessage())
        line = f"{_stamp(record)} {record.levelname.lower()} {message}{values}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _stamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def start_logging(form: str) -> None:
    """Send all log lines to stderr, as "text" or "json"."""
    if form not in ("text", "json"):
        raise DeltakwtError(f"--log {form!r}: must be text or json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    LOGGER.setLevel(logging.INFO)


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
