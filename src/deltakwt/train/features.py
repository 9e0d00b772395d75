"""The product's front end in torch, over batches, with the steady settings chosen clip by clip."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from deltakwt.core.config import ENERGY_FLOOR, FFT_SAMPLES, FRAME_SAMPLES, HOP_SAMPLES
from deltakwt.core.frontend import PLAIN, dct_matrix, mel_matrix


def mel_energies(audio: Tensor) -> Tensor:
    """(B, samples) in [-1, 1] -> (B, frames, 80)."""
    window, mel, _ = _tables(audio.device)
    frames = audio.unfold(1, FRAME_SAMPLES, HOP_SAMPLES) * window  # (B, frames, 480)
    spectrum: Tensor = torch.fft.rfft(frames, n=FFT_SAMPLES)
    return spectrum.abs() @ mel


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
    if floor is not None and (on := floor > 0).any():
        rank = int(PLAIN.quantile * (log.shape[1] - 1))
        background = log[on].kthvalue(rank + 1, dim=1, keepdim=True).values  # (n, 1, 80)
        log[on] = torch.maximum(log[on], background + floor[on].log()[:, None, None])
    return log @ _tables(log.device)[2]


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Hann window (480,), mel matrix (257, 80), DCT (80, 40); made in float64."""
    with torch.inference_mode(False):  # they are used in both modes
        turn = torch.arange(FRAME_SAMPLES, dtype=torch.float64) * (2 * math.pi / FRAME_SAMPLES)
        tables = (
            0.5 - 0.5 * turn.cos(),
            torch.from_numpy(mel_matrix()),
            torch.from_numpy(dct_matrix()),
        )
        window, mel, dct = (table.float().to(device) for table in tables)
    return window, mel, dct
