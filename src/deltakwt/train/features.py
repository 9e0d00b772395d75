"""From sound to features in torch: the product's MFCC, with augmentation of the front end.

The setting of the front end is drawn for every clip, so that one model works with all of them.
SpecAugment hides parts of the features, and training on some of the frames saves time.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Generator, Tensor

from deltakwt.core.config import (
    ENERGY_FLOOR,
    FEATURES,
    FFT_SAMPLES,
    FRAME_SAMPLES,
    HOP_SAMPLES,
    frames_of,
)
from deltakwt.core.frontend import dct_matrix, mel_matrix
from deltakwt.core.setting import PLAIN
from deltakwt.train.augment import Recipe

BATCH = 64  # clips at once where all clips of a set are converted


def mel_energies(audio: Tensor, stride: int = 1) -> Tensor:
    """Return mel energies (B, frames, 80) of samples (B, samples) in [-1, 1]."""
    window, mel, _ = _tables(audio.device)
    frames = audio.unfold(1, FRAME_SAMPLES, stride * HOP_SAMPLES) * window  # (B, frames, 480)
    spectrum: Tensor = torch.fft.rfft(frames, n=FFT_SAMPLES)
    return spectrum.abs() @ mel


def mfcc(energies: Tensor, smooth: Tensor | None = None, floor: Tensor | None = None) -> Tensor:
    """Return features (B, frames, 40) of mel energies (B, frames, 80).

    `smooth` (B,) bool: energies averaged over time with weights (1, 2, 1)/4. `floor` (B,): each
    band is kept above this many times its 20% quantile of the clip; 0 is off.
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


def plain_features(clips: Tensor, device: torch.device, stride: int = 1) -> Tensor:
    """Return features (n, frames, 40) of clips (n, 16000) with the plain front end, in batches."""
    if not len(clips):
        return torch.zeros(0, frames_of(stride), FEATURES, device=device)
    parts = (clips[start : start + BATCH] for start in range(0, len(clips), BATCH))
    with torch.inference_mode():
        return torch.cat([mfcc(mel_energies(part.to(device), stride)) for part in parts])


def front_end_settings(count: int, recipe: Recipe, rng: Generator) -> tuple[Tensor, Tensor]:
    """Return (B,) smoothing and (B,) floor, drawn for each clip."""
    smooth = torch.rand(count, generator=rng) < recipe.front_end_chance
    factor = 1 + 1.5 * torch.rand(count, generator=rng)
    floored = torch.rand(count, generator=rng) < recipe.front_end_chance
    return smooth, torch.where(floored, factor, 0.0)


def masks(count: int, recipe: Recipe, strength: float, rng: Generator, stride: int = 1) -> Tensor:
    """Return (B, frames, coefficients) bool, true where SpecAugment hides runs of either."""
    frames = frames_of(stride)
    hidden = torch.zeros(count, frames, FEATURES, dtype=torch.bool)
    for _ in range(recipe.time_masks):
        hidden |= _run(count, frames, recipe.time_mask / stride * strength, rng)[:, :, None]
    for _ in range(recipe.feature_masks):
        hidden |= _run(count, FEATURES, recipe.feature_mask * strength, rng)[:, None, :]
    return hidden


def some_frames(frames: int, group: int, rng: Generator) -> Tensor | None:
    """Return one random frame of every `group` in a row, in order; None stands for all frames."""
    if group == 1:
        return None
    start = torch.arange(0, frames, group)
    within = (torch.rand(len(start), generator=rng) * group).long()
    return (start + within).clamp(max=frames - 1)


def _run(count: int, length: int, longest: float, rng: Generator) -> Tensor:
    """Return (count, length) bool: one run of up to `longest` places in each row."""
    size = (torch.rand(count, 1, generator=rng) * (longest + 1)).floor()
    start = (torch.rand(count, 1, generator=rng) * (length - size + 1)).floor()
    place = torch.arange(length)
    return (place >= start) & (place < start + size)


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return Hann window (480,), mel matrix (257, 80) and DCT (80, 40), computed in float64."""
    with torch.inference_mode(False):  # they are used in both modes
        turn = torch.arange(FRAME_SAMPLES, dtype=torch.float64) * (2 * math.pi / FRAME_SAMPLES)
        tables = (
            0.5 - 0.5 * turn.cos(),
            torch.from_numpy(mel_matrix()),
            torch.from_numpy(dct_matrix()),
        )
        window, mel, dct = (table.float().to(device) for table in tables)
    return window, mel, dct
