"""The front end in readable NumPy: sound to MFCC, plain as the KWT authors have it, or steady.

In a real room the log of a quiet mel band jumps from frame to frame, so every token differs from
the one before it and nothing can be skipped. The steady front end takes that restlessness away
without training: it smooths the mel energies over time and floors each band a little above its
own background. The native front end computes the same, and tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import log, pi
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deltakwt.config import (
    ENERGY_FLOOR,
    FEATURES,
    FFT_SAMPLES,
    FRAME_SAMPLES,
    HOP_SAMPLES,
    MEL_BANDS,
    MEL_HIGH_HZ,
    MEL_LOW_HZ,
    SAMPLE_RATE,
)
from deltakwt.errors import DeltakwtError

# The stream's quantile tracker moves this much (in nats) a frame: quickly at first, then slowly.
STEP_FIRST, STEP_LEAST = 1.0, 0.02


@dataclass(frozen=True)
class Steady:
    """How the mel energies are steadied before the DCT. The default is plain, as in the paper."""

    smooth: bool = False  # energies weighted (1, 2, 1)/4 over time, before the logarithm
    floor: float = 0.0  # 0 is off; else a band is floored at `floor` times its own quantile
    quantile: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.floor < float("inf"):
            raise DeltakwtError(f"steady floor {self.floor}: must be 0 (off) or a positive number")
        if not 0 <= self.quantile <= 1:
            raise DeltakwtError(f"steady quantile {self.quantile}: must lie between 0 and 1")

    @classmethod
    def parse(cls, text: str) -> Steady:
        """ "plain", "smooth", "2" (floor), "smooth_2" or "smooth_2_0.2" (floor and quantile)."""
        parts = text.strip().split("_")
        if parts == ["plain"]:
            return PLAIN
        smooth = parts[0] == "smooth"
        try:
            numbers = [float(part) for part in parts[smooth:]]
        except ValueError:
            numbers = []
        if len(numbers) != len(parts) - smooth or len(numbers) > 2:
            raise DeltakwtError(
                f"steady {text!r}: give plain, smooth, a floor, or smooth_FLOOR[_QUANTILE]"
            )
        return cls(smooth, *numbers)

    def __str__(self) -> str:
        """The form that `parse` reads."""
        numbers = (self.floor, self.quantile) if self.floor else ()
        parts = ["smooth"] * self.smooth + [f"{number:g}" for number in numbers]
        return "_".join(parts) or "plain"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Steady:
        unknown = set(data) - {"smooth", "floor", "quantile"}
        if unknown:
            raise DeltakwtError(f"steady front end: unknown key {min(unknown)!r}")
        try:
            return cls(
                bool(data.get("smooth", False)),
                float(data.get("floor", 0.0)),
                float(data.get("quantile", 0.2)),
            )
        except (TypeError, ValueError):
            raise DeltakwtError(
                f"steady front end: {dict(data)} holds a value of a wrong type"
            ) from None


PLAIN = Steady()


@cache
def mel_matrix() -> NDArray[np.float64]:
    """(257, 80): spectrum bins to HTK mel bands, triangles that are linear in mel; bin 0 unused."""

    def mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1127.0 * np.log1p(hz / 700.0)

    low, high = mel(np.array([MEL_LOW_HZ, MEL_HIGH_HZ]))
    edges = np.linspace(low, high, MEL_BANDS + 2)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    bins = mel(np.linspace(0.0, SAMPLE_RATE / 2, FFT_SAMPLES // 2 + 1))[:, None]
    triangles = np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre))
    triangles[0] = 0.0
    return np.asarray(np.maximum(triangles, 0.0))


@cache
def dct_matrix() -> NDArray[np.float64]:
    """(80, 40): the first DCT-II coefficients of the log mel energies."""
    n, k = np.arange(MEL_BANDS)[:, None], np.arange(FEATURES)
    return np.asarray(2 * np.cos(pi * (2 * n + 1) * k / (2 * MEL_BANDS)) / np.sqrt(2 * MEL_BANDS))


def mel_energies(audio: NDArray[np.floating]) -> NDArray[np.float64]:
    """(n,) samples in [-1, 1] -> (frames, 80) mel magnitudes, 30 ms every 10 ms."""
    if audio.ndim != 1 or len(audio) < FRAME_SAMPLES:
        raise DeltakwtError(f"sound of shape {audio.shape}: a frame needs {FRAME_SAMPLES} samples")
    frames = sliding_window_view(audio.astype(np.float64), FRAME_SAMPLES)[::HOP_SAMPLES]
    hann = 0.5 - 0.5 * np.cos(2 * pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES)  # periodic
    spectrum = np.abs(np.fft.rfft(frames * hann, FFT_SAMPLES))  # (frames, 257), not squared
    return spectrum @ mel_matrix()


def mfcc(audio: NDArray[np.floating], steady: Steady = PLAIN) -> NDArray[np.float32]:
    """(n,) samples -> (frames, 40) features; the steady floor is taken over the whole sound."""
    energies = mel_energies(audio)
    if steady.smooth:
        energies = smooth(energies)
    return features(floor_bands(log_energies(energies), steady))


def smooth(energies: NDArray[np.float64]) -> NDArray[np.float64]:
    """(frames, 80): (1, 2, 1)/4 over time; the first and last frames are their own neighbours."""
    padded = np.pad(energies, ((1, 1), (0, 0)), mode="edge")
    return (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4


def log_energies(energies: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(energies, ENERGY_FLOOR))


def floor_bands(logs: NDArray[np.float64], steady: Steady) -> NDArray[np.float64]:
    """(frames, 80): no band falls below `floor` times its own quantile over these frames."""
    if not steady.floor:
        return logs
    rank = int(steady.quantile * (len(logs) - 1))  # an order statistic: nothing interpolated
    background = np.partition(logs, rank, axis=0)[rank]
    return np.asarray(np.maximum(logs, background + log(steady.floor)))


def features(logs: NDArray[np.float64]) -> NDArray[np.float32]:
    """(frames, 80) log energies -> (frames, 40)."""
    return (logs @ dct_matrix()).astype(np.float32)


class SteadyStream:
    """The steady front end for a stream that has no end: causal, each frame is finished once.

    Smoothing looks one frame (10 ms) ahead. A clip's quantile becomes a tracked level per band:
    each frame pushes it up by `step * quantile` or down by `step * (1 - quantile)`, which come to
    rest where a share `quantile` of the frames lies below.
    """

    def __init__(
        self, steady: Steady, step_first: float = STEP_FIRST, step_least: float = STEP_LEAST
    ) -> None:
        self.steady = steady
        self.steps = step_first, step_least
        self._pending: NDArray[np.float64] | None = None  # the last two frames, for smoothing
        self._level: NDArray[np.float64] | None = None  # (80,) tracked quantile of the logs
        self._seen = 0

    def push(self, energies: NDArray[np.float64]) -> NDArray[np.float32]:
        """(n, 80) new mel energies -> (m, 40) features of the frames that are now finished."""
        if self.steady.smooth:
            energies = self._smooth(energies)
        logs = log_energies(energies)
        if self.steady.floor:
            logs = np.array([self._floor(row) for row in logs]).reshape(-1, MEL_BANDS)
        return features(logs)

    def _smooth(self, energies: NDArray[np.float64]) -> NDArray[np.float64]:
        if not len(energies):
            return energies
        if self._pending is None:  # the first frame is its own left neighbour
            self._pending = energies[:1]
        known = np.concatenate([self._pending, energies])
        self._pending = known[-2:]
        return np.asarray((known[:-2] + 2 * known[1:-1] + known[2:]) / 4)

    def _floor(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """(80,): move the level by this frame, then floor the frame at it."""
        level = logs if self._level is None else self._level
        first, least = self.steps
        step = max(least, first / (1 + self._seen))
        up, down = step * self.steady.quantile, step * (1 - self.steady.quantile)
        self._level = level + np.where(logs > level, up, -down)
        self._seen += 1
        return np.asarray(np.maximum(logs, self._level + log(self.steady.floor)))
