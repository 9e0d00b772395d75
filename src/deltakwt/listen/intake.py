"""Blocks of any shape, type and rate as one stream: checked, mixed to mono, brought to 16 kHz."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.audio import LOUDEST, MAX_CHANNELS, RATES
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError

Samples = NDArray[np.float32]


class BadBlock(DeltakwtError):
    """A block that is no sound. Nothing of it was taken; the stream goes on with the next."""


def mono(block: ArrayLike) -> Samples:
    """(n,) or (n, channels), floats in [-1, 1] or integers -> (n,) float32."""
    samples = np.asarray(block)
    if samples.ndim not in (1, 2) or samples.dtype.kind not in "fiu":
        raise BadBlock(f"block: {samples.dtype} {samples.shape} is not sound; give (n,) floats")
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise BadBlock(f"block: shape {samples.shape} is not (samples, channels)")
    floats = _floats(samples)
    loudest = _native.loudest(floats)
    if not loudest <= LOUDEST:
        what = f"peaks at {loudest:g}" if np.isfinite(loudest) else "holds NaN or infinity"
        raise BadBlock(f"block: {what}; samples must lie in -1 to 1 (this block is left out)")
    if floats.size == len(floats):  # one channel
        return floats.reshape(-1)
    mixed: Samples = floats.mean(axis=1, dtype=np.float32)
    return mixed


def _floats(samples: NDArray[np.generic]) -> Samples:
    floats = np.ascontiguousarray(samples, np.float32)
    if samples.dtype.kind == "f":
        return floats
    bits = 8 * samples.dtype.itemsize
    if samples.dtype.kind == "u":  # silence in the middle, as in 8-bit WAV files
        floats = floats - np.float32(2.0 ** (bits - 1))
    return np.asarray(floats / np.float32(2.0 ** (bits - 1)), np.float32)


class Intake:
    """A stream whose rate may change; the resampler's state lives through all blocks."""

    def __init__(self) -> None:
        self._rate = SAMPLE_RATE
        self._resampler: Any = None

    def push(self, block: ArrayLike, rate: int) -> Samples:
        """The 16 kHz samples that are known now: resampling holds some back until more come."""
        samples = mono(block)
        if not RATES[0] <= rate <= RATES[1]:
            raise BadBlock(f"sample rate {rate} Hz is outside {RATES[0]} to {RATES[1]} Hz")
        if rate == self._rate:
            return self._convert(samples)
        rest = self.flush()
        self._rate = rate
        return np.concatenate([rest, self._convert(samples)])

    def flush(self) -> Samples:
        """What the resampler held back: the end of the stream, or of one rate."""
        rest = self._convert(np.zeros(0, np.float32), last=True)
        self._resampler = None
        return rest

    def _convert(self, samples: Samples, last: bool = False) -> Samples:
        if self._rate == SAMPLE_RATE:
            return samples
        if self._resampler is None:
            if last:
                return samples
            import soxr

            self._resampler = soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32")
        return np.asarray(self._resampler.resample_chunk(samples, last=last))
