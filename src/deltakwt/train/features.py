"""The product's front end in torch, over batches, with the steady settings chosen clip by clip."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

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

QUANTILE = 0.2  # of a band over the clip, where its floor is measured


def mel_energies(audio: Tensor) -> Tensor:
    """(B, samples) in [-1, 1] -> (B, frames, 80)."""
    window, mel, _ = _tables(audio.device)
    frames = audio.unfold(1, FRAME_SAMPLES, HOP_SAMPLES) * window  # (B, frames, 480)
    return torch.fft.rfft(frames, n=FFT_SAMPLES).abs() @ mel


def mfcc(energies: Tensor, smooth: Tensor | None = None, floor: Tensor | None = None) -> Tensor:
    """(B, frames, 80) mel energies -> (B, frames, 40).

    `smooth` (B,) bool: energies averaged over time by (1, 2, 1)/4. `floor` (B,): each band is
    held above this many times its 20% quantile of the clip; 0 is off.
    """
    if smooth is not None:
        padded = torch.cat([energies[:, :1], energies, energies[:, -1:]], dim=1)
        averaged = (padded[:, :-2] + 2 * energies + padded[:, 2:]) / 4
        energies = torch.where(smooth[:, None, None], averaged, energies)
    log = energies.clamp(min=ENERGY_FLOOR).log()
    if floor is not None:
        rank = int(QUANTILE * (log.shape[1] - 1))
        level = log.sort(dim=1).values[:, rank] + floor.log()[:, None]  # log 0 = -inf: no floor
        log = torch.maximum(log, level[:, None])
    return log @ _tables(log.device)[2]


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Hann window (480,), mel matrix (257, 80), DCT (80, 40); made in float64."""
    turn = torch.arange(FRAME_SAMPLES, dtype=torch.float64) * (2 * math.pi / FRAME_SAMPLES)
    window = 0.5 - 0.5 * turn.cos()
    n = torch.arange(MEL_BANDS, dtype=torch.float64)[:, None]
    k = torch.arange(FEATURES, dtype=torch.float64)
    dct = 2 * torch.cos(math.pi * (2 * n + 1) * k / (2 * MEL_BANDS)) / math.sqrt(2 * MEL_BANDS)
    return (
        window.float().to(device),
        _mel_matrix().float().to(device),
        dct.float().to(device),
    )


def _mel_matrix() -> Tensor:
    """HTK triangles, linear in mel; the bin at 0 Hz takes no part."""
    bins = torch.arange(FFT_SAMPLES // 2 + 1, dtype=torch.float64) * (SAMPLE_RATE / FFT_SAMPLES)
    mel = 1127.0 * torch.log1p(bins / 700.0)[:, None]  # (257, 1)
    low, high = (1127.0 * math.log1p(f / 700.0) for f in (MEL_LOW_HZ, MEL_HIGH_HZ))
    edges = torch.linspace(low, high, MEL_BANDS + 2, dtype=torch.float64)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (mel - left) / (centre - left), (right - mel) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    triangles[0] = 0
    return triangles
