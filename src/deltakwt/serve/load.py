"""Load for a Wyoming server: many clients in real time, and how late their words come.

    python -m deltakwt.serve.load --uri tcp://127.0.0.1:10400 --clients 40 --seconds 60 \
        --pid SERVER SPEECH.wav

The sound is repeated for as long as the run lasts. Every client begins at another place in it, so
that their words do not come at the same moment. With the process number of the server, the result
also has its processor time and memory, read from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncClient
from wyoming.wake import Detection

from deltakwt.audio import read_blocks
from deltakwt.core.config import SAMPLE_RATE

CHUNK = 1024  # samples of a message, as Home Assistant sends them
LATE = 1.0  # seconds after which a word is late


@dataclass
class Load:
    """What all clients saw."""

    delays: list[float] = field(default_factory=list)  # seconds from the last needed sample
    behind: float = 0.0  # seconds by which a client was late with sending, at most
    dropped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return counts, and delays in milliseconds."""
        delays = 1000 * np.array(self.delays or [0.0])
        return {
            "words": len(self.delays),
            "late": sum(delay > LATE for delay in self.delays),
            "delay_ms": {
                name: round(float(np.percentile(delays, percent)), 1)
                for name, percent in (("median", 50), ("p99", 99), ("worst", 100))
            },
            "sending_behind_ms": round(1000 * self.behind, 1),
            "dropped_clients": self.dropped,
        }


async def run_client(uri: str, pcm: NDArray[np.int16], seconds: float, load: Load) -> None:
    """Send sound in real time and note when words come back."""
    try:
        async with AsyncClient.from_uri(uri) as client:
            await client.write_event(AudioStart(SAMPLE_RATE, 2, 1).event())
            begun = time.monotonic()
            reading = asyncio.create_task(_read(client, begun, load))
            sent = 0
            while sent < seconds * SAMPLE_RATE and not reading.done():
                sound = pcm.take(range(sent, sent + CHUNK), mode="wrap").astype("<i2").tobytes()
                sent += CHUNK
                wait = begun + sent / SAMPLE_RATE - time.monotonic()
                load.behind = max(load.behind, -wait)
                await asyncio.sleep(max(0.0, wait))
                await client.write_event(AudioChunk(SAMPLE_RATE, 2, 1, sound).event())
            load.dropped += reading.done()
            reading.cancel()
    except OSError:
        load.dropped += 1


async def _read(client: AsyncClient, begun: float, load: Load) -> None:
    """Note the delay of every word, until the server hangs up or refuses."""
    while (event := await client.read_event()) is not None and event.type != "error":
        if Detection.is_type(event.type):
            load.delays.append(time.monotonic() - begun - float(event.data["time"]))


def server_usage(pid: int) -> tuple[float, float]:
    """Return the processor seconds and the resident megabytes of a process (Linux)."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(values[11]) + int(values[12])
    pages = int(values[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def run(
    uri: str, file: str, clients: int, seconds: float, pid: int | None = None
) -> dict[str, Any]:
    """Run all clients and return the result."""
    sound = np.concatenate(list(read_blocks(file)))
    pcm = (sound.clip(-1, 1) * 32767).astype(np.int16)
    step = len(pcm) // clients
    load = Load()
    before = server_usage(pid) if pid else (0.0, 0.0)
    tasks = (run_client(uri, np.roll(pcm, -n * step), seconds, load) for n in range(clients))
    running = asyncio.gather(*tasks)
    await asyncio.sleep(0.9 * seconds)  # all clients are connected: memory is at its highest
    during = server_usage(pid) if pid else (0.0, 0.0)
    await running
    result = {"clients": clients, "seconds": seconds, **load.to_json()}
    if pid:
        result["server_cores"] = round((during[0] - before[0]) / (0.9 * seconds), 3)
        result["server_mb"] = round(during[1], 1)
        result["mb_per_client"] = round((during[1] - before[1]) / clients, 3)
    return result


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description="Put load on a Wyoming server.")
    parser.add_argument("file", help="sound file with words, which is repeated")
    parser.add_argument("--uri", default="tcp://127.0.0.1:10400", help="address of the server")
    parser.add_argument("--clients", type=int, default=20, help="number of clients")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the run")
    parser.add_argument("--pid", type=int, help="process number of the server")
    given = parser.parse_args()
    result = run(given.uri, given.file, given.clients, given.seconds, given.pid)
    print(json.dumps(asyncio.run(result), indent=2))


if __name__ == "__main__":
    main()
