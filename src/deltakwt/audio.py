"""Reading of sound files and arrays as 16 kHz mono float32, in blocks of bounded size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.containers import check_parts
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import open_regular

if TYPE_CHECKING:
    import soundfile

Audio = NDArray[np.float32]
Sound = str | os.PathLike[str] | ArrayLike  # a file, or samples with their rate

BLOCK_VALUES = 1 << 20  # samples times channels of one block: 4 MiB
RATES = (1_000, 768_000)  # Hz
MAX_CHANNELS = 64
# What libsndfile reads, by the usual suffixes. A file that is named itself may have any.
SOUND_SUFFIXES = (
    *(".aif", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64"),
    *(".snd", ".w64", ".wav", ".wave"),
)
LOUDEST = 100.0  # 40 dB above full scale: larger values are integers stored as floats


def read_clip(path: str | os.PathLike[str]) -> Audio:
    """Return the first second of a file (16000,), zero-padded if it is shorter."""
    clip = np.zeros(CLIP_SAMPLES, np.float32)
    filled = 0
    for block in read_blocks(path):
        part = block[: CLIP_SAMPLES - filled]
        clip[filled : filled + len(part)] = part
        filled += len(part)
        if filled == CLIP_SAMPLES:
            break
    return clip


def read_blocks(path: str | os.PathLike[str]) -> Iterator[Audio]:
    """Yield the sound of a file as blocks of 16 kHz mono samples."""
    name = os.fspath(path)
    yield from _resampled(name, _decoded(name))


def array_blocks(sound: ArrayLike, sample_rate: int | None) -> Iterator[Audio]:
    """Yield an array as blocks of 16 kHz mono samples.

    The array is (n,) or (n, channels), with floats in [-1, 1] or integers of any width.
    """
    try:
        samples = np.asarray(sound)
    except ValueError:  # lists of different lengths
        raise DeltakwtError("array: is not an array of numbers; give (n,) floats") from None
    rate = SAMPLE_RATE if sample_rate is None else _whole_rate(sample_rate)
    if samples.ndim not in (1, 2) or samples.dtype.kind not in "fiu":
        raise DeltakwtError(
            f"array: {samples.dtype} {samples.shape} is not sound; give (n,) floats"
        )
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise DeltakwtError(f"array: shape {samples.shape} is not (samples, channels)")
    yield from _resampled("array", _chopped(samples, rate))


def _whole_rate(rate: object) -> int:
    is_whole = isinstance(rate, Integral) or (isinstance(rate, float) and rate.is_integer())
    if not is_whole or isinstance(rate, bool):
        raise DeltakwtError(f"sample rate {rate!r}: must be a whole number of Hz")
    return int(rate)  # type: ignore[call-overload, no-any-return]


def blocks(sound: Sound, sample_rate: int | None = None) -> Iterator[Audio]:
    """Yield a file or an array as blocks of 16 kHz mono samples."""
    if isinstance(sound, str | os.PathLike):
        return read_blocks(sound)
    return array_blocks(sound, sample_rate)


def duration(sound: Sound) -> float | None:
    """Return the seconds of a file according to its header, or None if they are not known."""
    if not isinstance(sound, str | os.PathLike):
        return None
    try:
        with open_sound(sound) as file:
            return float(file.frames / file.samplerate)
    except DeltakwtError:
        return None


def frames_of(path: str | os.PathLike[str]) -> int:
    """Return the number of samples of each channel of a file according to its header."""
    with open_sound(path) as file:
        return int(file.frames)


def read_part(path: str | os.PathLike[str], start: int, count: int) -> Audio:
    """Return the first channel of a 16 kHz file from `start` on: at most `count` samples."""
    name = os.fspath(path)
    with open_sound(path) as file:
        if file.samplerate != SAMPLE_RATE:
            raise DeltakwtError(f"{name}: must have 16 kHz")
        if start >= file.frames:
            raise DeltakwtError(f"{name}: ends before sample {start}")
        file.seek(start)
        part = file.read(count, dtype="float32", always_2d=True)[:, 0]
    _check_loudness(name, part)
    return np.ascontiguousarray(part)


def one_clip(sound: Sound, sample_rate: int | None = None) -> Audio:
    """Return a sound of up to one second as (16000,), zero-padded at its end."""
    is_16_khz = sample_rate is None or (type(sample_rate) is int and sample_rate == SAMPLE_RATE)
    if is_16_khz and _is_clip(sound):
        return sound
    held: list[Audio] = []
    length = 0
    for block in blocks(sound, sample_rate):
        held.append(block)
        length += len(block)
        if length > CLIP_SAMPLES:
            raise DeltakwtError("longer than one second; model.spot() finds the words in it")
    clip = np.zeros(CLIP_SAMPLES, np.float32)
    clip[:length] = np.concatenate(held)
    return clip


def _is_clip(sound: Sound) -> TypeGuard[Audio]:
    """Return whether a sound is an array that `one_clip` would only copy."""
    return (
        isinstance(sound, np.ndarray)
        and sound.shape == (CLIP_SAMPLES,)
        and sound.dtype == np.float32
        and sound.flags.c_contiguous
        and _native.loudest(sound) <= LOUDEST
    )


@contextmanager
def open_sound(path: str | os.PathLike[str]) -> Iterator[soundfile.SoundFile]:
    """Open a sound file, and refuse everything else; reading errors name the file."""
    import soundfile

    name = os.fspath(path)
    # libsndfile gets the opened file: its name could mean another file a moment later.
    with open_regular(name) as opened:
        if not os.fstat(opened.fileno()).st_size:
            raise DeltakwtError(f"{name}: empty file")
        check_parts(name, opened)
        try:
            with soundfile.SoundFile(opened.fileno(), closefd=False) as file:
                if not 1 <= file.channels <= MAX_CHANNELS:
                    raise DeltakwtError(f"{name}: {file.channels} channels, at most {MAX_CHANNELS}")
                _check_rate(name, file.samplerate)
                yield file
        except soundfile.LibsndfileError as error:
            reason = error.error_string.removeprefix("Error : ").strip().rstrip(".")
            raise DeltakwtError(f"{name}: not readable as sound: {reason}") from error


def _decoded(name: str) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the sample rate and (n, channels) blocks of a file."""
    with open_sound(name) as file:
        check_whole_wav(name, file)
        read, frames = 0, max(1, BLOCK_VALUES // file.channels)
        while len(block := file.read(frames, dtype="float32", always_2d=True)):
            read += len(block)
            yield file.samplerate, block
        if read < file.frames:
            raise DeltakwtError(f"{name}: truncated: {read} of {file.frames} samples are there")


def check_whole_wav(name: str, file: soundfile.SoundFile) -> None:
    """Refuse a WAV file that was cut short. libsndfile only notes this in its log.

    Programs that do not know the length yet write a size of almost 2 or 4 GiB: that is accepted.
    """
    found = re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if found and int(found[2]) < int(found[1]) < 0x7FFF_0000:
        raise DeltakwtError(f"{name}: truncated: {found[2]} of {found[1]} bytes are there")


def _chopped(samples: NDArray[Any], rate: int) -> Iterator[tuple[int, NDArray[Any]]]:
    kind = samples.dtype
    rows = samples if samples.ndim == 2 else samples[:, None]
    frames = BLOCK_VALUES // rows.shape[1]
    for start in range(0, len(rows), frames):
        block = rows[start : start + frames].astype(np.float32)
        if kind.kind == "i":
            block /= -float(np.iinfo(kind).min)
        elif kind.kind == "u":  # silence is the middle of the range, as in 8-bit WAV files
            half = float(np.iinfo(kind).max // 2 + 1)
            block = (block - half) / half
        yield rate, block


def _check_rate(name: str, rate: int) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise DeltakwtError(f"{name}: sample rate {rate} Hz is outside {RATES[0]} to {RATES[1]} Hz")


def _check_loudness(name: str, block: NDArray[Any]) -> None:
    loudest = float(np.abs(block).max(initial=0.0))
    if not loudest <= LOUDEST:
        reason = "holds NaN or infinity" if not np.isfinite(loudest) else f"peaks at {loudest:g}"
        raise DeltakwtError(f"{name}: {reason}; samples must lie in -1 to 1")


def _resampled(name: str, decoded: Iterator[tuple[int, NDArray[Any]]]) -> Iterator[Audio]:
    stream, total = None, 0
    for rate, block in decoded:
        _check_rate(name, rate)
        _check_loudness(name, block)
        mono = block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32)
        total += len(mono)
        if rate == SAMPLE_RATE:
            yield np.ascontiguousarray(mono)
            continue
        if stream is None:
            import soxr

            stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
        step = max(1, BLOCK_VALUES * rate // SAMPLE_RATE)  # one block after resampling
        for start in range(0, len(mono), step):
            yield stream.resample_chunk(mono[start : start + step])
    if not total:
        raise DeltakwtError(f"{name}: holds no sound (zero samples)")
    if stream is not None:
        yield stream.resample_chunk(np.zeros(0, np.float32), last=True)
