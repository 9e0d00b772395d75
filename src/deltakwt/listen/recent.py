"""The newest seconds of a stream, in a buffer of fixed size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError


class Recent:
    """Holds at least the last `kept` samples. Blocks have at most `longest` samples.

    Written from left to right; when the right end is reached, the newest `kept` samples move to
    the left end, so that a sample is copied once on average and not with every block.
    """

    def __init__(self, kept: int, longest: int) -> None:
        self._kept = kept
        self._buffer = np.zeros(2 * kept + longest, np.float32)
        self._used = 0
        self.total = 0  # samples since the start

    def push(self, samples: NDArray[np.float32]) -> None:
        if self._used + len(samples) > len(self._buffer):
            self._buffer[: self._kept] = self._buffer[self._used - self._kept : self._used]
            self._used = self._kept
        self._buffer[self._used : self._used + len(samples)] = samples
        self._used += len(samples)
        self.total += len(samples)

    def cut(self, start: int, end: int) -> NDArray[np.float32]:
        """A copy of samples `start` to `end` since the start; before it there is silence."""
        oldest = self.total - self._used
        if end > self.total or max(start, 0) < oldest or start > end:
            raise DeltakwtError(
                f"samples {start} to {end} are not held; {oldest} to {self.total} are"
            )
        known = self._buffer[max(start, 0) - oldest : max(end, 0) - oldest]
        missing = end - start - len(known)
        return np.concatenate([np.zeros(missing, np.float32), known]) if missing else known.copy()
