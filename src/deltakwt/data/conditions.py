"""Clips under worse conditions: through a telephone, in noise, in a large room, moved in time.

Tuning and the measurement of robustness use the same functions, so a profile is chosen by the
conditions it is judged by.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE

TELEPHONE_BAND = (300.0, 3400.0)  # Hz
TELEPHONE_EDGE = 100.0  # Hz from full gain to none, outside the band
NOISY_SNR = 10.0  # dB
SHIFT_SAMPLES = 300 * SAMPLE_RATE // 1000
SPOKEN = 0.01  # frames with at least this share of the loudest frame's power are speech
POWER_FRAME = SAMPLE_RATE // 100
ROOM_VOLUME = 300.0  # cubic metres
ROOM_DECAY = 0.8  # seconds until an echo has lost 60 dB
ROOM_DISTANCE = 4.0  # metres from the mouth to the microphone

Sounds = NDArray[np.float32]  # (n, 16000)


def telephone(sounds: Sounds) -> Sounds:
    """Return the sounds (n, 16000) limited to the telephone band, without delay.

    Nothing is left beyond the edges, as after a line that samples at 8 kHz.
    """
    low, high = TELEPHONE_BAND
    frequencies = np.fft.rfftfreq(2 * CLIP_SAMPLES, 1 / SAMPLE_RATE)  # padded: no wrap-around
    beyond = np.maximum(low - frequencies, frequencies - high) / TELEPHONE_EDGE
    gain = 0.5 + 0.5 * np.cos(np.pi * np.clip(beyond, 0, 1))  # raised cosine: 1 inside, 0 beyond
    result = np.empty_like(sounds)
    for number, sound in enumerate(sounds):
        spectrum = np.fft.rfft(sound, 2 * CLIP_SAMPLES)
        result[number] = np.fft.irfft(spectrum * gain)[:CLIP_SAMPLES]
    return result


def noisy(sounds: Sounds, noise: Sounds, snr: float = NOISY_SNR) -> Sounds:
    """Return the sounds (n, 16000) with noise (n, 16000) added `snr` dB below the spoken part."""
    speech = spoken_power(sounds)
    power = np.maximum(np.square(noise, dtype=np.float64).mean(axis=1), 1e-12)
    gain = np.sqrt(speech / power / 10 ** (snr / 10))  # (n,)
    mixed: Sounds = np.clip(sounds + gain[:, None] * noise, -1, 1).astype(np.float32)
    return mixed


def spoken_power(sounds: Sounds) -> NDArray[np.float64]:
    """Return the mean power (n,) of the 10 ms frames with speech."""
    frames = _frame_power(sounds)
    spoken = frames >= SPOKEN * frames.max(axis=1, keepdims=True)
    return np.asarray((frames * spoken).sum(axis=1) / spoken.sum(axis=1))


def shifted(sounds: Sounds, offsets: NDArray[np.int64]) -> Sounds:
    """Return the sounds moved by `offsets` samples: later if positive, filled up with zeros."""
    result = np.zeros_like(sounds)
    for row, sound, offset in zip(result, sounds, offsets, strict=True):
        if offset >= 0:
            row[offset:] = sound[: len(sound) - offset]
        else:
            row[:offset] = sound[-offset:]
    return result


def stays_inside(sounds: Sounds, offset: int) -> NDArray[np.bool_]:
    """Return for each sound (n,) whether its word is still whole after a move by `offset`.

    The word is what holds 98% of the power above the clip's own background.
    """
    frames = _frame_power(sounds)
    above = np.maximum(frames - 2 * np.quantile(frames, 0.15, axis=1, keepdims=True), 0)
    share = np.cumsum(above, axis=1) / np.maximum(above.sum(axis=1, keepdims=True), 1e-12)
    first = POWER_FRAME * (share < 0.01).sum(axis=1)
    end = POWER_FRAME * ((share < 0.99).sum(axis=1) + 1)
    return np.asarray((first + offset >= 0) & (end + offset <= CLIP_SAMPLES))


def in_large_room(sounds: Sounds, seed: int) -> Sounds:
    """Return the sounds (n, 16000) as recorded in a large room, each with an echo of its own.

    The echo is noise that decays exponentially (Polack's model). Its level against the direct
    sound follows from the distance at which both are equal, 0.057 sqrt(volume / decay).
    """
    rng = np.random.default_rng(seed)
    echo_to_direct = ROOM_DISTANCE**2 / (0.057**2 * ROOM_VOLUME / ROOM_DECAY)  # of power
    decay = 10 ** (-3 * np.arange(CLIP_SAMPLES) / (SAMPLE_RATE * ROOM_DECAY))
    result = np.empty_like(sounds)
    for number, sound in enumerate(sounds):
        response = rng.standard_normal(CLIP_SAMPLES) * decay
        response *= np.sqrt(echo_to_direct / np.square(response).sum())
        response[0] = 1.0
        spectrum = np.fft.rfft(sound, 2 * CLIP_SAMPLES) * np.fft.rfft(response, 2 * CLIP_SAMPLES)
        echoed = np.fft.irfft(spectrum)[:CLIP_SAMPLES]
        loudest = max(float(np.abs(sound).max()), 1e-6)
        result[number] = echoed * (loudest / max(float(np.abs(echoed).max()), 1e-6))
    return result


def _frame_power(sounds: Sounds) -> NDArray[np.float64]:
    """Return the power (n, 100) of each 10 ms frame."""
    squares = np.square(sounds, dtype=np.float64)
    return np.asarray(squares.reshape(len(sounds), -1, POWER_FRAME).mean(axis=2))
