"""The bytes of a Home Assistant session, as the protocol's documentation describes them.

https://github.com/OHF-Voice/wyoming: every message is a line of JSON, then `data_length` bytes of
more JSON, then `payload_length` bytes. Older programs put all data into the line. The messages are
those of Home Assistant's wake word integration: describe when it is set up; then, on a connection
of its own, detect, audio-start and chunks of 1024 samples until there is a detection.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("wyoming")

from deltakwt.core.model import Model
from deltakwt.serve.hub import Hub
from deltakwt.serve.wyoming import serving

BYTES = 2048  # of a chunk


def message(kind: str, data: dict[str, Any], payload: bytes = b"", *, inline: bool) -> bytes:
    """Return the bytes of one message, in the new form or in the old one."""
    header: dict[str, Any] = {"type": kind, "version": "1.5.4"}
    more = b""
    if inline:
        header["data"] = data
    elif data:
        more = json.dumps(data).encode()
        header["data_length"] = len(more)
    if payload:
        header["payload_length"] = len(payload)
    return json.dumps(header).encode() + b"\n" + more + payload


async def read(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    header = json.loads(await reader.readline())
    data = header.get("data") or {}
    if length := header.get("data_length"):
        data |= json.loads(await reader.readexactly(length))
    await reader.readexactly(header.get("payload_length") or 0)
    return header["type"], data


@pytest.mark.parametrize("inline", [False, True])
def test_a_recorded_session(model: Model, pcm: bytes, inline: bool) -> None:
    async def run() -> None:
        hub = Hub(lambda: model)
        async with serving(hub, "tcp://127.0.0.1:0") as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(message("describe", {}, inline=inline))
            kind, info = await read(reader)
            assert kind == "info"
            [program] = info["wake"]
            assert "left" in [one["name"] for one in program["models"]]
            assert {"attribution", "installed", "description", "version"} <= program.keys()
            writer.close()

            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            form = {"rate": 16_000, "width": 2, "channels": 1}
            writer.write(message("detect", {"names": ["left"]}, inline=inline))
            writer.write(message("audio-start", {**form, "timestamp": 0}, inline=inline))
            for number, at in enumerate(range(0, len(pcm), BYTES)):
                data = {**form, "timestamp": 64 * number}
                writer.write(message("audio-chunk", data, pcm[at : at + BYTES], inline=inline))
                await writer.drain()
            kind, found = await asyncio.wait_for(read(reader), 60)
            assert kind == "detection"
            assert found["name"] == "left"
            assert 3_000 < found["timestamp"] < 5_000
            writer.close()  # as Home Assistant does: no audio-stop after a detection
        hub.close()

    asyncio.run(run())
