"""PCM bytes of a client as blocks of samples, and the bounded buffer in which they wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import MAX_CHANNELS, RATES
from deltakwt.listen.pcm import SAMPLE_BYTES, decode_pcm
from deltakwt.serve.limits import Refused

LONGEST = 1.0  # seconds of sound that are processed at once, so that no client waits long

Samples = NDArray[Any]


def check_format(kind: str, rate: object, channels: object) -> tuple[str, int, int]:
    """Return the three values if they describe PCM that can be read, else refuse."""
    if kind not in SAMPLE_BYTES:
        kinds = ", ".join(SAMPLE_BYTES)
        raise Refused("bad-audio", f"sample format {kind!r}: must be one of {kinds}")
    if type(rate) is not int or not RATES[0] <= rate <= RATES[1]:
        raise Refused("bad-audio", f"rate {rate!r}: must be {RATES[0]} to {RATES[1]} Hz")
    if type(channels) is not int or not 1 <= channels <= MAX_CHANNELS:
        raise Refused("bad-audio", f"channels {channels!r}: must be 1 to {MAX_CHANNELS}")
    return kind, rate, channels


def decode(data: bytes, kind: str, channels: int) -> Samples:
    """Return whole frames of PCM as (n, channels) integers or floats."""
    size = SAMPLE_BYTES[kind]
    if len(data) % (size * channels):
        raise Refused(
            "bad-audio",
            f"{len(data)} bytes are not whole samples of {size} bytes and {channels} channels",
        )
    return decode_pcm(data, kind, channels)


class SoundBuffer:
    """Blocks that wait for the model. A writer that is too fast waits until there is room.

    The waiting writer does not read from its connection, so the client is slowed down by TCP.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: deque[tuple[Samples, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def put(self, block: Samples, rate: int) -> None:
        """Add a block when there is room. It is split into pieces of at most one second."""
        frames = max(1, round(LONGEST * rate))
        for start in range(0, len(block), frames):
            piece = block[start : start + frames]
            async with self._changed:
                await self._changed.wait_for(lambda: self._bytes < self._limit)
                self._blocks.append((piece, rate))
                self._bytes += piece.nbytes
                self._changed.notify_all()

    async def end(self) -> None:
        """Mark the end of the sound; blocks that wait are still read."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def __aiter__(self) -> AsyncIterator[tuple[Samples, int]]:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._blocks or self._ended)
                if not self._blocks:
                    return
                taken = self._take()
                self._changed.notify_all()
            yield taken

    def _take(self) -> tuple[Samples, int]:
        """Return the first block, joined with those after it that are alike."""
        first, rate = self._blocks.popleft()
        parts, frames = [first], len(first)
        while self._blocks:
            block, its_rate = self._blocks[0]
            alike = its_rate == rate and block.dtype == first.dtype
            alike = alike and block.shape[1:] == first.shape[1:]
            if not alike or frames + len(block) > LONGEST * rate:
                break
            self._blocks.popleft()
            parts.append(block)
            frames += len(block)
        self._bytes -= sum(part.nbytes for part in parts)
        return (first if len(parts) == 1 else np.concatenate(parts)), rate
