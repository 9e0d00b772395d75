"""The front end to the last bit: what the native front end computes on every processor.

`core.frontend` explains the front end in double precision. This file is the same front end in
32-bit floats, with every operation in the order of the native code: no fused multiply-adds, and
sums in one order. IEEE 754 defines the result of each operation, so NumPy, scalar C, AVX2, AVX-512
and NEON give the same bits. With features rounded to 16 bits (`fixed_weights.fixed_features`) and
the fixed-point engine, everything from sound to logits is the same on every machine.
"""

from __future__ import annotations

from functools import cache
from math import log, pi, sqrt

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
from deltakwt.core.setting import PLAIN, FrontEndSetting

Floats = NDArray[np.float32]

HALF = FFT_SAMPLES // 2  # complex numbers of the FFT: even samples real, odd samples imaginary
GROUP = 4  # bands that the DCT adds up before it adds them to the sum
LOG_FACTORS = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
ROOT_HALF = 0x3F3504F3  # the bits of sqrt(1/2)


@cache
def mel_weights() -> list[tuple[int, Floats]]:
    """Return the first bin and the weights of each band, halved: magnitudes come doubled."""

    def mel(hz: NDArray[np.float64] | float) -> NDArray[np.float64]:
        return np.asarray(1127.0 * np.log1p(np.asarray(hz) / 700.0))

    low = mel(MEL_LOW_HZ)
    step = (mel(MEL_HIGH_HZ) - low) / (MEL_BANDS + 1)
    bins = np.arange(1, HALF)
    made = []
    for band in range(MEL_BANDS):
        at = (mel(bins * SAMPLE_RATE / FFT_SAMPLES) - low) / step - band
        height = np.where(at < 1.0, at, 2.0 - at)
        (used,) = np.nonzero(height > 0.0)
        made.append((int(bins[used[0]]), (height[used] / 2.0).astype(np.float32)))
    return made


@cache
def turns(count: int) -> tuple[Floats, Floats]:
    """Return cosine and sine of exp(-2 pi i k / count), k = 0 .. count-1."""
    angle = 2.0 * pi * np.arange(count) / count
    return np.cos(angle).astype(np.float32), (-np.sin(angle)).astype(np.float32)


def fft(re: Floats, im: Floats) -> tuple[Floats, Floats]:
    """256 complex numbers (256, frames) -> frequencies, by radix-4 decimation in frequency."""
    re, im = re.copy(), im.copy()
    cosine, sine = turns(HALF)
    span = HALF
    while span >= 4:
        q = span // 4
        for j in range(q):
            at = np.arange(j, HALF, span)
            (ar, br, cr, dr), (ai, bi, ci, di) = (
                [part[at + p * q] for p in range(4)] for part in (re, im)
            )
            sum_r, dif_r, sum2_r, dif2_r = ar + cr, ar - cr, br + dr, br - dr
            sum_i, dif_i, sum2_i, dif2_i = ai + ci, ai - ci, bi + di, bi - di
            yr = [sum_r + sum2_r, dif_r + dif2_i, sum_r - sum2_r, dif_r - dif2_i]
            yi = [sum_i + sum2_i, dif_i - dif2_r, sum_i - sum2_i, dif_i + dif2_r]
            for p in range(4):
                if p and j:
                    turn = p * j * (HALF // span)
                    c, s = cosine[turn], sine[turn]
                    yr[p], yi[p] = yr[p] * c - yi[p] * s, yr[p] * s + yi[p] * c
                re[at + p * q], im[at + p * q] = yr[p], yi[p]
        span = q
    k = np.arange(HALF)
    place = (k & 3) << 6 | (k >> 2 & 3) << 4 | (k >> 4 & 3) << 2 | k >> 6  # digits reversed
    return re[place], im[place]


def magnitudes(re: Floats, im: Floats) -> Floats:
    """Return (257, frames): twice the magnitudes of bins 1..255 of the real spectrum."""
    out = np.zeros((HALF + 1, re.shape[1]), np.float32)
    cosine, sine = turns(FFT_SAMPLES)
    for k in range(1, HALF // 2 + 1):
        ar, ai, br, bi = re[k], im[k], re[HALF - k], im[HALF - k]
        er, ei, odd_r, odd_i = ar + br, ai - bi, ai + bi, br - ar
        c, s = cosine[k], sine[k]
        tr, ti = odd_r * c - odd_i * s, odd_r * s + odd_i * c
        pr, pi_, qr, qi = er + tr, ei + ti, er - tr, ei - ti
        out[HALF - k] = np.sqrt(qr * qr + qi * qi)
        out[k] = np.sqrt(pr * pr + pi_ * pi_)
    return out


def mel_energies(audio: Floats, stride: int = 1) -> Floats:
    """Return mel magnitudes (frames, 80) of samples (n,) in [-1, 1]."""
    frames = sliding_window_view(audio, FRAME_SAMPLES)[:: stride * HOP_SAMPLES]
    hann = 0.5 - 0.5 * np.cos(2.0 * pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES)
    padded = np.zeros((FFT_SAMPLES, len(frames)), np.float32)
    padded[:FRAME_SAMPLES] = (frames * hann.astype(np.float32)).T
    magnitude = magnitudes(*fft(padded[0::2], padded[1::2]))
    out = np.zeros((len(frames), MEL_BANDS), np.float32)
    for band, (first, weights) in enumerate(mel_weights()):
        for bin_, weight in enumerate(weights, first):
            out[:, band] = magnitude[bin_] * weight + out[:, band]
    return out


def logarithm(x: Floats) -> Floats:
    """Return log(max(x, 1e-12)): x = m 2^e, log(m) a polynomial in m - 1."""
    bits = np.maximum(x, np.float32(ENERGY_FLOOR)).view(np.int32)
    above = bits - ROOT_HALF
    e = (above >> 23).astype(np.float32)
    f = ((above & 0x7FFFFF) + ROOT_HALF).view(np.float32) - np.float32(1)
    p = np.full_like(f, LOG_FACTORS[0])
    for factor in LOG_FACTORS[1:]:
        p = p * f + np.float32(factor)
    square = f * f
    p = p * f * square - e * np.float32(2.12194440e-4) - np.float32(0.5) * square
    return np.asarray(e * np.float32(0.693359375) + (f + p))


def dct(logs: Floats) -> Floats:
    """Return features (frames, 40) of log energies (frames, 80)."""
    n, k = np.arange(MEL_BANDS)[:, None], np.arange(FEATURES)
    angle = pi * (2 * n + 1) * k / (2.0 * MEL_BANDS)
    matrix = (2.0 * np.cos(angle) / sqrt(2.0 * MEL_BANDS)).astype(np.float32)
    out = np.zeros((len(logs), FEATURES), np.float32)
    for band in range(0, MEL_BANDS, GROUP):
        part = logs[:, band, None] * matrix[band]
        for i in range(1, GROUP):
            part = part + logs[:, band + i, None] * matrix[band + i]
        out = out + part
    return out


def mfcc(audio: Floats, front_end: FrontEndSetting = PLAIN, stride: int = 1) -> Floats:
    """Return features (frames, 40) of samples (n,), as `frontend.mfcc`."""
    energies = mel_energies(np.asarray(audio, np.float32), stride)
    if front_end.smooth:
        padded = np.pad(energies, ((1, 1), (0, 0)), mode="edge")
        energies = (padded[:-2] + np.float32(2) * padded[1:-1] + padded[2:]) / np.float32(4)
    logs = logarithm(energies)
    if front_end.floor:
        rank = int(front_end.quantile * (len(logs) - 1))
        background = np.partition(logs, rank, axis=0)[rank]
        logs = np.maximum(logs, background + np.float32(log(front_end.floor)))
    return dct(logs)
