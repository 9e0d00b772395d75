"""Augmentation of sound: each function changes a batch of clips at once in one way.

All clips are (B, 16000) floats in [-1, 1]. Every random number comes from the generator that is
passed in, so the same seed gives the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from deltakwt.core.config import CLIP_SAMPLES, HOP_SAMPLES, SAMPLE_RATE

MARGIN = 4_000  # samples of sound before and after the second, for shifting and stretching
RAW_SAMPLES = CLIP_SAMPLES + 2 * MARGIN
FFT = 32_768  # a clip and a room's response fit without wrapping around
MIDDLE = CLIP_SAMPLES / 2
LOSS_AT_EDGE = 0.08  # a shifted word loses at most this part of itself


@dataclass(frozen=True)
class Recipe:
    """How strongly clips are changed. A chance is the share of the clips that are changed."""

    shift_ms: float = 350.0  # largest shift of a word, limited by the word's own extent
    near_ms: float = 100.0  # half of the words are shifted by at most this much
    cut_chance: float = 0.0  # words cut off by the edge of the window, which are unknown
    cut_part: tuple[float, float] = (0.1, 0.5)  # part of a cut word inside the window
    stretch: float = 0.15  # resampled by 1 - 0.15 ... 1 + 0.15
    stretch_chance: float = 0.6
    room_chance: float = 0.25  # without rooms nothing happens
    background_chance: float = 0.62
    loud_chance: float = 0.3  # of the backgrounds: down to the lowest ratio
    snr_db: tuple[float, float] = (-5.0, 28.0)
    usual_snr_db: float = 4.0  # lowest ratio of the other backgrounds
    talker_snr_db: float = 2.0  # lowest ratio of one other talker
    band_chance: float = 0.28
    gain_db: tuple[float, float] = (-30.0, 12.0)
    gain_chance: float = 0.5
    hiss_db: tuple[float, float] = (-100.0, -55.0)
    hiss_chance: float = 0.4
    round_chance: float = 0.5  # to 16 bits
    piece_chance: float = 0.12  # of running speech: a piece by itself, silence around it
    front_end_chance: float = 0.6  # of smoothing, and of a floor; 0 is the plain front end only
    time_masks: int = 2  # SpecAugment
    time_mask: int = 25  # frames of 10 ms at most
    feature_masks: int = 2
    feature_mask: int = 7  # coefficients at most


def word_extent(clips: Tensor) -> Tensor:
    """Return (B, 2) first and last sample of each word: 1.5% to 98.5% of its energy."""
    energy = clips.view(len(clips), -1, HOP_SAMPLES).square().mean(2)  # (B, 100)
    kernel = torch.tensor([[[0.25, 0.5, 0.25]]])
    energy = F.conv1d(energy[:, None], kernel, padding=1)[:, 0]
    floor = energy.quantile(0.15, dim=1, keepdim=True)
    speech = (energy - 2 * floor).clamp(min=0) + 1e-12
    share = speech.cumsum(1) / speech.sum(1, keepdim=True)
    first = (share < 0.015).sum(1)
    last = (share < 0.985).sum(1) + 1
    return HOP_SAMPLES * torch.stack([first, last], dim=1).float()


def stretch_rates(count: int, recipe: Recipe, rng: Generator) -> Tensor:
    """Return (B,) rates of resampling: above 1 is faster and higher, 1 is no change."""
    rate = 1 + recipe.stretch * _symmetric(count, rng)
    return torch.where(_chance(count, recipe.stretch_chance, rng), rate, 1.0)


def shifts(extent: Tensor, rate: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Return (B,) samples to move words by so that at least 92% of each stays inside."""
    count = len(extent)
    most = torch.where(_chance(count, 0.5, rng), recipe.near_ms, recipe.shift_ms)
    wanted = most.clamp(max=recipe.shift_ms) * _symmetric(count, rng) * SAMPLE_RATE / 1000
    first, last = _stretched(extent, rate)
    slack = LOSS_AT_EDGE * (last - first)
    low = (-first - slack).clamp(max=0)
    high = (CLIP_SAMPLES - last + slack).clamp(min=0)
    return torch.minimum(torch.maximum(wanted, low), high)


def cut_off_shifts(extent: Tensor, rate: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Return (B,) samples to move words by so that only 10 to 50% of each is inside."""
    first, last = _stretched(extent, rate)
    inside = _uniform(len(extent), recipe.cut_part, rng) * (last - first)
    early = _chance(len(extent), 0.5, rng)
    return torch.where(early, inside - last, CLIP_SAMPLES - inside - first)


def free_shifts(count: int, recipe: Recipe, rng: Generator) -> Tensor:
    """Return (B,) samples to move clips by that need not stay whole."""
    return recipe.shift_ms * _symmetric(count, rng) * SAMPLE_RATE / 1000


def place_clips(raw: Tensor, shift: Tensor, rate: Tensor) -> Tensor:
    """Return (B, 16000): (B, 24000) resampled about the middle, then moved by `shift` samples."""
    count, samples = raw.shape
    shift = shift.round()[:, None]
    time = (torch.arange(CLIP_SAMPLES) - MIDDLE - shift) * rate[:, None]
    place = (time + MIDDLE + (samples - CLIP_SAMPLES) / 2).clamp(-1, samples)
    before = place.floor()
    index = before.long() + 1  # one zero is added before the sound and two after it
    padded = F.pad(raw, (1, 2))
    left, right = padded.gather(1, index), padded.gather(1, index + 1)
    return torch.lerp(left, right, place - before)


def isolate_pieces(raw: Tensor, rng: Generator) -> Tensor:
    """Return clips (B, 24000) of which only a piece of 150 to 690 ms, with fades, is kept."""
    count = len(raw)
    length = _uniform(count, (2_400.0, 11_000.0), rng)[:, None]
    start = MARGIN + torch.rand(count, 1, generator=rng) * (CLIP_SAMPLES - length)
    time = torch.arange(raw.shape[1])
    fade = 0.01 * SAMPLE_RATE
    rise, fall = (time - start) / fade, (start + length - time) / fade
    return raw * torch.minimum(rise, fall).clamp(0, 1)


def add_rooms(clips: Tensor, rooms: Tensor | None, chance: float, rng: Generator) -> Tensor:
    """Convolve some clips with random impulse responses (n, 12800)."""
    count = len(clips)
    inside = _chance(count, chance, rng)
    if rooms is None or not inside.any():
        return clips
    which = torch.randint(len(rooms), (count,), generator=rng)[inside]
    spectrum = torch.fft.rfft(clips[inside], FFT) * torch.fft.rfft(rooms[which], FFT)
    return _replaced(clips, inside, torch.fft.irfft(spectrum, FFT)[:, :CLIP_SAMPLES])


def snr_levels(talker: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Return the (B,) ratio of clip to background in dB; infinite for clips without a background.

    `talker` (B,) bool: the background is a single voice, which is kept below the word.
    """
    count = len(talker)
    lowest, highest = recipe.snr_db
    low = torch.where(_chance(count, recipe.loud_chance, rng), lowest, recipe.usual_snr_db)
    low = torch.where(talker, recipe.talker_snr_db, low)
    ratio = low + (highest - low) * torch.rand(count, generator=rng)
    return torch.where(_chance(count, recipe.background_chance, rng), ratio, torch.inf)


def mix(clips: Tensor, background: Tensor, snr_db: Tensor) -> Tensor:
    """Add backgrounds at a ratio (B,) to the loud part of each clip; a silent clip stays silent."""
    ratio = speech_power(clips) / background.square().mean(1).clamp(min=1e-12)
    gain = ratio.sqrt() * 10 ** (-snr_db / 20)  # 0 for an infinite ratio
    return clips + gain[:, None] * background


def speech_power(clips: Tensor) -> Tensor:
    """Return (B,) power of the loud part of each clip: the 80% quantile over 100 ms pieces."""
    return clips.square().unfold(1, 1_600, 800).mean(2).quantile(0.8, dim=1)


TELEPHONE, NARROW, CHEAP = 0, 1, 2  # kinds of band limits
KIND_SHARES = (0.45, 0.15, 0.40)


def band_limit(clips: Tensor, chance: float, rng: Generator, kind: int | None = None) -> Tensor:
    """Limit the band of some clips as a telephone, an 8 kHz system or a cheap microphone does."""
    count = len(clips)
    limited = _chance(count, chance, rng)
    if not limited.any():
        return clips
    response = band_responses(int(limited.sum()), rng, kind)
    spectrum = torch.fft.rfft(clips[limited], FFT) * response
    return _replaced(clips, limited, torch.fft.irfft(spectrum, FFT)[:, :CLIP_SAMPLES])


def band_responses(count: int, rng: Generator, kind: int | None = None) -> Tensor:
    """Return gains (B, FFT/2 + 1). Telephone: 200-320 to 3400-3800 Hz. Narrow: up to 3600-4000 Hz.

    Cheap microphone: 50-300 to 4500-8500 Hz with a slope of up to 12 dB per decade. Outside its
    band a telephone is at least 40 dB down.
    """
    drawn = torch.multinomial(torch.tensor(KIND_SHARES), count, replacement=True, generator=rng)
    kinds = (drawn if kind is None else torch.full((count,), kind))[:, None]
    frequency = torch.fft.rfftfreq(FFT, 1 / SAMPLE_RATE)

    def draw(low: float, high: float) -> Tensor:
        return _uniform(count, (low, high), rng)[:, None]

    steep, slow = draw(60, 300), draw(200, 1_500)
    phone_top = draw(3_400, 3_800) - 1.15 * steep  # 40 dB down at 3400 to 3800 Hz
    narrow_top, cheap_top = draw(3_600, 4_000) - 1.15 * steep, draw(4_500, 8_500)
    bottom, cheap_bottom = draw(200, 320), draw(50, 300)
    bottom_width = draw(40, 120)
    slope = draw(-12, 12) * ((frequency + 50) / 1_000).log10() / 20
    low_pass = torch.where(
        kinds == CHEAP,
        torch.sigmoid(4 * (cheap_top - frequency) / slow),
        torch.sigmoid(
            4 * (torch.where(kinds == TELEPHONE, phone_top, narrow_top) - frequency) / steep
        ),
    )
    edge = torch.where(kinds == CHEAP, cheap_bottom, bottom)
    high_pass = torch.sigmoid(4 * (frequency - edge) / bottom_width)
    gain = low_pass * torch.where(kinds == NARROW, 1.0, high_pass)
    gain = gain * torch.where(kinds == CHEAP, 10**slope, 1.0)
    leak = 10 ** (draw(-90, -45) / 20)
    return torch.maximum(gain, leak)


def change_gain(clips: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Change the level of some clips by -30 to +12 dB, then clip all of them at full scale."""
    count = len(clips)
    gain = 10 ** (_uniform(count, recipe.gain_db, rng) / 20)
    gain = torch.where(_chance(count, recipe.gain_chance, rng), gain, 1.0)
    return (clips * gain[:, None]).clamp(-1, 1)


def add_hiss(clips: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Add white noise of -100 to -55 dB of full scale to some clips."""
    count = len(clips)
    level = 10 ** (_uniform(count, recipe.hiss_db, rng) / 20)
    level = torch.where(_chance(count, recipe.hiss_chance, rng), level, 0.0)
    noise = torch.randn(clips.shape, generator=rng)
    return (clips + level[:, None] * noise).clamp(-1, 1)


def round_to_16_bits(clips: Tensor, recipe: Recipe, rng: Generator) -> Tensor:
    """Round some clips to 16-bit samples, as a sound file or a converter does."""
    rounded = _chance(len(clips), recipe.round_chance, rng)[:, None]
    return torch.where(rounded, (clips * 32768).round() / 32768, clips)


def coloured_noise(count: int, samples: int, rng: Generator) -> Tensor:
    """Return noise (count, samples) of unit power, from white to brown (power falls as f^-2)."""
    white = torch.fft.rfft(torch.randn(count, samples, generator=rng))
    slope = 2 * torch.rand(count, 1, generator=rng)
    frequency = torch.arange(1, white.shape[1] + 1)
    noise: Tensor = torch.fft.irfft(white * frequency ** (-slope / 2), n=samples)
    return noise / noise.square().mean(1, keepdim=True).sqrt()


def _stretched(extent: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and last sample of words after resampling about the middle."""
    first, last = (MIDDLE + (extent - MIDDLE) / rate[:, None]).unbind(1)
    return first, last


def _replaced(clips: Tensor, where: Tensor, new: Tensor) -> Tensor:
    out = clips.clone()
    out[where] = new
    return out


def _uniform(count: int, limits: tuple[float, float], rng: Generator) -> Tensor:
    low, high = limits
    return low + (high - low) * torch.rand(count, generator=rng)


def _symmetric(count: int, rng: Generator) -> Tensor:
    return 2 * torch.rand(count, generator=rng) - 1


def _chance(count: int, probability: float, rng: Generator) -> Tensor:
    return torch.rand(count, generator=rng) < probability
