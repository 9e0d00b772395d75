"""The sound of `deltakwt explore --live`, for every page that follows it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from deltakwt.listen.pcm import BadBlock, Resampler
from deltakwt.listen.sources import Block

MAX_WAITING = 100  # blocks that a slow page may be behind; older ones are dropped


class LiveSound:
    """Reads a source in a thread of its own and hands every block to all followers.

    `note` gets the reason if the source fails.
    """

    def __init__(
        self, blocks: Iterable[Block], note: Callable[[str], None] = lambda reason: None
    ) -> None:
        self._followers: set[queue.Queue[bytes]] = set()
        self._lock = threading.Lock()
        self._has_ended = False
        self._note = note
        self._thread = threading.Thread(target=self._run, args=(blocks,), daemon=True)

    def start(self) -> None:
        """Start reading. What comes before a page follows is not kept."""
        self._thread.start()

    def follow(self) -> Iterator[bytes]:
        """Yield 16-bit little-endian samples of 16 kHz from now on."""
        mine: queue.Queue[bytes] = queue.Queue(MAX_WAITING)
        with self._lock:
            self._followers.add(mine)
            if self._has_ended:
                mine.put(b"")
        try:
            while part := mine.get():
                yield part
        finally:
            with self._lock:
                self._followers.discard(mine)

    def _run(self, blocks: Iterable[Block]) -> None:
        resampler = Resampler()
        try:
            for block, rate in blocks:
                try:
                    samples = resampler.push(block, rate)
                except BadBlock:
                    continue
                if len(samples):
                    whole = np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2")
                    self._send(whole.tobytes())
        except Exception as error:
            self._note(str(error))
        with self._lock:
            self._has_ended = True
        self._send(b"")

    def _send(self, part: bytes) -> None:
        with self._lock:
            for follower in self._followers:
                if follower.full():
                    follower.get_nowait()
                follower.put_nowait(part)
