"""How much is computed: multiply-accumulates and processor time, now, lately and ever.

Time is the sound's own (samples pushed), so a file listened to faster than real time reads the
same as a microphone. Memory is sixty numbers a second for a minute, whatever the duration.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from deltakwt.core.config import SAMPLE_RATE

MINUTE = 60


@dataclass
class Tally:
    """What happened in some stretch of sound."""

    samples: int = 0
    windows: int = 0  # that were due
    computed: int = 0  # that were run, not carried over from the one before
    macs: int = 0
    cpu: float = 0.0  # seconds of one core

    def add(self, other: Tally) -> None:
        self.samples += other.samples
        self.windows += other.windows
        self.computed += other.computed
        self.macs += other.macs
        self.cpu += other.cpu


@dataclass(frozen=True)
class Reading:
    """A stretch of sound in the units people ask for."""

    seconds: float
    windows: int
    macs_percent: float  # of running the dense model on every window
    macs_per_second: float  # of sound
    reused_percent: float  # windows that were not run at all
    cpu_percent: float  # of one core, if the sound comes in real time

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 3),
            "windows": self.windows,
            "macs_percent": round(self.macs_percent, 3),
            "macs_per_second": round(self.macs_per_second),
            "reused_percent": round(self.reused_percent, 2),
            "cpu_percent": round(self.cpu_percent, 3),
        }


class Meter:
    """Adds up tallies by second of sound and reads them over three spans."""

    def __init__(self, dense_macs: int) -> None:
        self.dense_macs = dense_macs  # of one window
        self.total = Tally()
        self._seconds: deque[tuple[int, Tally]] = deque()  # (second, what fell into it)

    def add(self, tally: Tally) -> None:
        """The next stretch of sound."""
        self.total.add(tally)
        second = self.total.samples // SAMPLE_RATE
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Tally()))
        self._seconds[-1][1].add(tally)
        while self._seconds[0][0] < second - MINUTE:
            self._seconds.popleft()

    def spend(self, cpu: float) -> None:
        """Processor time that belongs to what was added last."""
        self.total.cpu += cpu
        if self._seconds:
            self._seconds[-1][1].cpu += cpu

    @property
    def now(self) -> Reading:
        """About the last second, or the last block where blocks are longer."""
        return self._recent(1)

    @property
    def minute(self) -> Reading:
        return self._recent(MINUTE)

    @property
    def ever(self) -> Reading:
        return self._reading(self.total)

    def _recent(self, seconds: int) -> Reading:
        """The newest whole tallies that together last `seconds`."""
        recent = Tally()
        for _, tally in reversed(self._seconds):
            recent.add(tally)
            if recent.samples >= seconds * SAMPLE_RATE:
                break
        return self._reading(recent)

    def _reading(self, tally: Tally) -> Reading:
        seconds = tally.samples / SAMPLE_RATE
        windows = max(tally.windows, 1)
        return Reading(
            seconds,
            tally.windows,
            100 * tally.macs / (windows * self.dense_macs),
            tally.macs / seconds if seconds else 0.0,
            100 * (tally.windows - tally.computed) / windows,
            100 * tally.cpu / seconds if seconds else 0.0,
        )

    def to_json(self) -> dict[str, Any]:
        spans = {"now": self.now, "minute": self.minute, "ever": self.ever}
        return {name: reading.to_json() for name, reading in spans.items()}
