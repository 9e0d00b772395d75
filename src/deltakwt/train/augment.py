"""Augmentation of a shard of clips at once, every random number from one generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from deltakwt.core.config import CLIP_SAMPLES, FEATURES, FRAMES, SAMPLE_RATE


@dataclass(frozen=True)
class Recipe:
    """How strongly clips are changed; the KWT authors' values, and ours for noise and loudness."""

    shift_ms: float = 100.0
    cut_chance: float = 0.0  # words of which half is heard, at an edge of the clip: unknown
    cut_ms: tuple[float, float] = (430.0, 600.0)
    stretch: float = 0.15  # resampled by 1 - 0.15 ... 1 + 0.15
    stretch_chance: float = 0.7  # the others keep their spectrum untouched
    noise_chance: float = 0.8
    noise_volume: float = 0.1
    loud_noise_chance: float = 0.45  # of the noisy: mixed at a drawn signal-to-noise ratio instead
    snr_db: tuple[float, float] = (0.0, 22.0)
    gain_db: tuple[float, float] = (-10.0, 5.0)
    gain_chance: float = 0.5
    room_chance: float = 0.0  # echoes of a synthetic room, for speech recorded (or made) in none
    time_masks: int = 2  # SpecAugment
    time_mask: int = 25  # frames at most
    feature_masks: int = 2
    feature_mask: int = 7  # coefficients at most
    steady_chance: float = 0.5  # of smoothing, and of a floor; 0: the plain front end only

    def heard(self, steady: float, loud: float) -> Recipe:
        """With other shares of steady front ends and of clips at a drawn ratio to noise."""
        noisy = max(self.noise_chance, loud)
        share = round(loud / noisy, 6)
        return replace(self, steady_chance=steady, noise_chance=noisy, loud_noise_chance=share)


def cut_off(count: int, recipe: Recipe, rng: Generator) -> Tensor:
    """(B, 1) samples by which some clips are moved so far that half of the word is lost, else 0."""
    low, high = recipe.cut_ms
    away = low + (high - low) * torch.rand(count, generator=rng)
    away *= torch.where(_chance(count, 0.5, rng), 1.0, -1.0) * SAMPLE_RATE / 1000
    return torch.where(_chance(count, recipe.cut_chance, rng), away, 0.0)[:, None]


def move_and_stretch(
    clips: Tensor, recipe: Recipe, rng: Generator, away: Tensor | float = 0.0
) -> Tensor:
    """(B, 16000): shifted in time and resampled about the middle, by linear interpolation.

    `away` (B, 1): samples to shift by beside the recipe's.
    """
    count, samples = clips.shape
    rate = 1 + recipe.stretch * (2 * torch.rand(count, 1, generator=rng) - 1)
    rate = torch.where(_chance(count, recipe.stretch_chance, rng)[:, None], rate, 1.0)
    most = recipe.shift_ms * SAMPLE_RATE / 1000
    shift = (most * (2 * torch.rand(count, 1, generator=rng) - 1) + away).round()
    middle = samples / 2
    place = (torch.arange(samples) - middle) * rate + (middle + shift)  # (B, samples)
    before = place.floor()
    fraction = place - before
    index = before.long() + 1  # one zero stands before the clip and two after it
    padded = torch.nn.functional.pad(clips, (1, 2))
    left = padded.gather(1, index.clamp(0, samples + 1))
    right = padded.gather(1, (index + 1).clamp(0, samples + 1))
    return torch.lerp(left, right, fraction)


def rooms(clips: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """(B, 16000): some clips with echoes that fade by 60 dB within 0.1 to 0.6 s."""
    count, samples = clips.shape
    if not recipe.room_chance:
        return clips
    seconds = 0.1 + 0.5 * torch.rand(count, 1, generator=rng)
    time = torch.arange(samples) / SAMPLE_RATE
    echo = torch.randn(count, samples, generator=rng) * 10 ** (-3 * time / seconds)
    loudness = 0.5 * torch.rand(count, 1, generator=rng)  # of the echoes beside the direct sound
    echo *= loudness / echo.square().sum(1, keepdim=True).sqrt()
    echo[:, 0] = 1.0
    length = 2 * samples
    spectrum = torch.fft.rfft(clips, length) * torch.fft.rfft(echo, length)
    heard = torch.fft.irfft(spectrum, length)[:, :samples]
    return torch.where(_chance(count, recipe.room_chance, rng)[:, None], heard, clips)


def noise_segments(noises: Sequence[Tensor], count: int, rng: Generator) -> Tensor:
    """(count, 16000) of the recorded noises, each as likely as any other; synthetic if none."""
    if not noises:
        return 0.3 * coloured_noise(count, rng)
    which = torch.randint(len(noises), (count,), generator=rng).tolist()
    start = torch.rand(count, generator=rng).tolist()
    out = torch.empty(count, CLIP_SAMPLES)
    for row, (file, at) in enumerate(zip(which, start, strict=True)):
        noise = noises[file]
        begin = int(at * (len(noise) - CLIP_SAMPLES))
        out[row] = noise[begin : begin + CLIP_SAMPLES]
    return out


def coloured_noise(count: int, rng: Generator) -> Tensor:
    """(count, 16000) of unit power, spectrum falling by 0 (white) to 2 (brown) powers of f."""
    white = torch.fft.rfft(torch.randn(count, CLIP_SAMPLES, generator=rng))
    slope = 2 * torch.rand(count, 1, generator=rng)
    frequency = torch.arange(1, white.shape[1] + 1)
    noise: Tensor = torch.fft.irfft(white * frequency ** (-slope / 2), n=CLIP_SAMPLES)
    return noise / noise.square().mean(1, keepdim=True).sqrt()


def silence(noises: Sequence[Tensor], count: int, rng: Generator) -> Tensor:
    """(count, 16000): recorded noise (60%), synthetic noise (30%), digital zero (10%).

    Volumes are even in decibels from nothing to be heard (-100 dB) to full scale: a quiet room
    is silence, and so is a running tap.
    """
    kind = torch.rand(count, 1, generator=rng)
    recorded = noise_segments(noises, count, rng)
    volume = 10 ** (-5 * torch.rand(count, 1, generator=rng))
    clips = torch.where(kind < 0.6, recorded, 0.3 * coloured_noise(count, rng)) * volume
    return torch.where(kind < 0.9, clips, 0.0).clamp(-1, 1)


def add_noise(clips: Tensor, noises: Sequence[Tensor], recipe: Recipe, rng: Generator) -> Tensor:
    """Loudness changed, and background noise under most clips."""
    count = len(clips)
    low, high = recipe.gain_db
    gain = 10 ** ((low + (high - low) * torch.rand(count, 1, generator=rng)) / 20)
    clips = torch.where(_chance(count, recipe.gain_chance, rng)[:, None], clips * gain, clips)
    noise = noise_segments(noises, count, rng)
    volume = recipe.noise_volume * torch.rand(count, 1, generator=rng)
    low, high = recipe.snr_db
    snr = low + (high - low) * torch.rand(count, 1, generator=rng)
    power = clips.square().mean(1, keepdim=True) / noise.square().mean(1, keepdim=True).clamp(1e-9)
    loud = (power.sqrt() * 10 ** (-snr / 20)).clamp(max=1)
    volume = torch.where(_chance(count, recipe.loud_noise_chance, rng)[:, None], loud, volume)
    volume = torch.where(_chance(count, recipe.noise_chance, rng)[:, None], volume, 0.0)
    return (clips + volume * noise).clamp(-1, 1)


def masks(count: int, recipe: Recipe, strength: float, rng: Generator) -> Tensor:
    """SpecAugment: (count, frames, coefficients) bool, true where runs of either are hidden."""
    hidden = torch.zeros(count, FRAMES, FEATURES, dtype=torch.bool)
    for _ in range(recipe.time_masks):
        hidden |= _span(count, FRAMES, recipe.time_mask * strength, rng)[:, :, None]
    for _ in range(recipe.feature_masks):
        hidden |= _span(count, FEATURES, recipe.feature_mask * strength, rng)[:, None, :]
    return hidden


def front_end_settings(count: int, recipe: Recipe, rng: Generator) -> tuple[Tensor, Tensor]:
    """Smoothing and floor drawn per clip, so that one model hears well through any of them."""
    smooth = _chance(count, recipe.steady_chance, rng)
    factor = 1 + 2 * torch.rand(count, generator=rng)
    return smooth, torch.where(_chance(count, recipe.steady_chance, rng), factor, 0.0)


def some_frames(frames: int, group: int, rng: Generator) -> Tensor | None:
    """One frame drawn from every `group` in a row, in order; None keeps all."""
    if group == 1:
        return None
    start = torch.arange(0, frames, group)
    within = (torch.rand(len(start), generator=rng) * group).long()
    return (start + within).clamp(max=frames - 1)


def _span(count: int, length: int, longest: float, rng: Generator) -> Tensor:
    """(count, length) bool: one run of up to `longest` places in each row."""
    size = (torch.rand(count, 1, generator=rng) * (longest + 1)).floor()
    start = (torch.rand(count, 1, generator=rng) * (length - size + 1)).floor()
    place = torch.arange(length)
    return (place >= start) & (place < start + size)


def _chance(count: int, probability: float, rng: Generator) -> Tensor:
    return torch.rand(count, generator=rng) < probability
