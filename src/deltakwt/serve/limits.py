"""What one client may use, and how a client that uses more is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from deltakwt.core.errors import DeltakwtError

SOUND_COST = 0.005  # least cost of a message with sound, in seconds of sound
OTHER_COST = 0.1  # cost of a message without sound


@dataclass(frozen=True)
class Limits:
    """The limits of a server. Times are seconds; 0 turns `idle` or `ahead` off."""

    clients: int = 64  # connections at the same time
    message: int = 1 << 20  # bytes of sound in one message
    buffered: int = 1 << 20  # bytes of sound per client that wait for the model
    ahead: float = 120.0  # sound that a client may send faster than real time
    idle: float = 600.0  # without any message
    stall: float = 10.0  # for the rest of a message that has begun, or for reading an answer
    body: int = 64 << 20  # bytes of a sound file that is posted
    seconds: float = 60.0  # for receiving and for processing a sound file

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("idle", "ahead") else 1e-3
            if not least <= value < math.inf:
                raise DeltakwtError(f"limit {field.name} = {value}: must be a positive number")


class Refused(Exception):
    """A client broke a limit or the protocol: it gets the reason, and its connection is closed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Pace:
    """Measures how far a client is ahead of real time.

    Sound adds to the level and time takes from it. Messages with little sound or none count as a
    little, so that a flood of them is a flood too.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._level, self._last = 0.0, clock()

    def add(self, seconds: float | None = None) -> None:
        """Count one message with so much sound, or without sound."""
        now = self._clock()
        cost = OTHER_COST if seconds is None else max(seconds, SOUND_COST)
        self._level = max(0.0, self._level - (now - self._last)) + cost
        self._last = now
        if self._limit and self._level > self._limit:
            raise Refused(
                "flood",
                f"sound or messages came more than {self._limit:g} s ahead of real time; send more"
                " slowly or raise --max-ahead",
            )
