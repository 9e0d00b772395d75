"""Messages of the Wyoming protocol, read with every length checked before it is used.

A message is a line of JSON, optional JSON data and an optional payload. The reader of the
`wyoming` package believes the lengths that a client names, which a server must not do.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from wyoming.event import Event

from deltakwt.serve.limits import Limits, Refused

HEADER = 64 << 10  # bytes of a message's line, and of its data


async def read_message(reader: asyncio.StreamReader, limits: Limits) -> Event | None:
    """Return the next message, None at the end of the stream; refuse what breaks a limit."""
    try:
        async with asyncio.timeout(limits.idle or None):
            first = await reader.read(1)
    except TimeoutError:
        raise Refused("idle", f"no message for {limits.idle:g} s") from None
    if not first:
        return None
    try:
        async with asyncio.timeout(limits.stall):
            return await _read_rest(first, reader, limits)
    except TimeoutError:
        raise Refused("stall", f"a message took longer than {limits.stall:g} s") from None
    except asyncio.IncompleteReadError:
        raise Refused("bad-message", "the connection ended within a message") from None
    except asyncio.LimitOverrunError:
        raise Refused("too-large", f"a message line is longer than {HEADER} bytes") from None


async def _read_rest(first: bytes, reader: asyncio.StreamReader, limits: Limits) -> Event:
    line = first if first == b"\n" else first + await reader.readuntil(b"\n")
    header = _json_object(line)
    kind, data = header.get("type"), header.get("data", {})
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise Refused("bad-message", "a message needs a type and, if any, an object as data")
    if length := _length(header, "data_length", HEADER):
        data = {**data, **_json_object(await reader.readexactly(length))}
    payload = None
    if length := _length(header, "payload_length", limits.message):
        payload = await reader.readexactly(length)
    return Event(kind, data, payload)


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("bad-message", "a message is not JSON; is this a Wyoming client?") from None
    if not isinstance(document, dict):
        raise Refused("bad-message", "a message is not a JSON object")
    return document


def _length(header: dict[str, Any], name: str, most: int) -> int:
    length = header.get(name) or 0
    if type(length) is not int or length < 0:
        raise Refused("bad-message", f"{name}: must be a whole number of at least 0")
    if length > most:
        raise Refused("too-large", f"{name} {length}: at most {most} bytes are taken")
    return length
