"""The front end in readable NumPy: sound to MFCC features.

The plain front end is that of the KWT authors. `FrontEndSetting` adds smoothing over time and a
floor per mel band. The native front end computes the same; tests compare the two.
"""

from __future__ import annotations

from functools import cache
from math import log, pi

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from deltakwt.core.config import (
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
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, FrontEndSetting

# Step of the quantile tracker of a stream, in nats per frame: the first step and the smallest one.
STEP_FIRST, STEP_LEAST = 1.0, 0.02


@cache
def mel_matrix() -> NDArray[np.float64]:
    """Return (257, 80): HTK mel bands as triangles that are linear in mel; bin 0 is not used."""

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
    """Return (80, 40): the first 40 coefficients of the DCT-II of 80 log mel energies."""
    n, k = np.arange(MEL_BANDS)[:, None], np.arange(FEATURES)
    return np.asarray(2 * np.cos(pi * (2 * n + 1) * k / (2 * MEL_BANDS)) / np.sqrt(2 * MEL_BANDS))


def mel_energies(audio: NDArray[np.floating], stride: int = 1) -> NDArray[np.float64]:
    """Return mel magnitudes (frames, 80) of samples (n,) in [-1, 1]: 30 ms every 10 * stride ms."""
    if audio.ndim != 1 or len(audio) < FRAME_SAMPLES:
        raise DeltakwtError(f"sound of shape {audio.shape}: a frame needs {FRAME_SAMPLES} samples")
    windows = sliding_window_view(audio.astype(np.float64), FRAME_SAMPLES)
    frames = windows[:: stride * HOP_SAMPLES]
    hann = 0.5 - 0.5 * np.cos(2 * pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES)  # periodic
    spectrum = np.abs(np.fft.rfft(frames * hann, FFT_SAMPLES))  # (frames, 257), not squared
    return spectrum @ mel_matrix()


def mfcc(
    audio: NDArray[np.floating], front_end: FrontEndSetting = PLAIN, stride: int = 1
) -> NDArray[np.float32]:
    """Return features (frames, 40) of samples (n,). The floor of a band is that of all frames."""
    energies = mel_energies(audio, stride)
    if front_end.smooth:
        energies = smooth(energies)
    return features(floor_bands(log_energies(energies), front_end))


def smooth(energies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return energies (frames, 80) weighted (1, 2, 1)/4 over time; both ends are repeated."""
    padded = np.pad(energies, ((1, 1), (0, 0)), mode="edge")
    return (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4


def log_energies(energies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the natural logarithm of the energies, which are limited from below."""
    return np.log(np.maximum(energies, ENERGY_FLOOR))


def floor_bands(logs: NDArray[np.float64], front_end: FrontEndSetting) -> NDArray[np.float64]:
    """Return (frames, 80): each band is at least `floor` times its quantile over these frames."""
    if not front_end.floor:
        return logs
    rank = int(front_end.quantile * (len(logs) - 1))  # an order statistic, not interpolated
    background = np.partition(logs, rank, axis=0)[rank]
    return np.asarray(np.maximum(logs, background + log(front_end.floor)))


def features(logs: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return features (frames, 40) of log energies (frames, 80)."""
    return (logs @ dct_matrix()).astype(np.float32)


class FrontEndStream:
    """The front end of a stream: causal, and each frame is computed once.

    Smoothing looks one frame ahead. Instead of the quantile of a clip, a level per band is
    tracked: each frame moves it up by `step * quantile` or down by `step * (1 - quantile)`. The two
    balance where a share `quantile` of the frames lies below the level.
    """

    def __init__(
        self,
        front_end: FrontEndSetting,
        step_first: float = STEP_FIRST,
        step_least: float = STEP_LEAST,
    ) -> None:
        self.front_end = front_end
        self.steps = step_first, step_least
        self._pending: NDArray[np.float64] | None = None  # the last two frames, for smoothing
        self._level: NDArray[np.float64] | None = None  # (80,) tracked quantile of the logs
        self._seen = 0

    def push(self, energies: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return features (m, 40) of the frames that new mel energies (n, 80) complete."""
        if self.front_end.smooth:
            energies = self._smooth(energies)
        logs = log_energies(energies)
        if self.front_end.floor:
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
        """Update the level with this frame (80,), and return the frame limited from below by it."""
        level = logs if self._level is None else self._level
        first, least = self.steps
        step = max(least, first / (1 + self._seen))
        up, down = step * self.front_end.quantile, step * (1 - self.front_end.quantile)
        self._level = level + np.where(logs > level, up, -down)
        self._seen += 1
        return np.asarray(np.maximum(logs, self._level + log(self.front_end.floor)))
