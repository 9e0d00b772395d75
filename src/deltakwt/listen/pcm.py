"""Blocks of sound: conversion to 16 kHz mono, the newest samples of a stream, PCM from a pipe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.audio import LOUDEST, MAX_CHANNELS, RATES
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError

Samples = NDArray[np.float32]
SAMPLE_BYTES = {"u8": 1, "s16": 2, "s24": 3, "s32": 4, "f32": 4}  # of PCM, little-endian
MAX_HEADER = 1 << 20  # bytes of WAV chunks before the sound
EXTENSIBLE = 0xFFFE
UNKNOWN_SIZE = 0x7FFF_0000  # programs that do not know the length write this size or a larger one


class BadBlock(DeltakwtError):
    """A block is not sound. None of it was used, and the stream continues with the next block."""


class SourceLost(DeltakwtError):
    """A source ended too early, for example an unplugged microphone. It may come back."""

    exit_code = 1


def mono(block: ArrayLike) -> Samples:
    """Return (n,) float32 of a block (n,) or (n, channels), floats in [-1, 1] or integers."""
    try:
        samples = np.asarray(block)
    except ValueError:  # lists of different lengths
        raise BadBlock("block: is not an array of numbers; give (n,) floats") from None
    if samples.ndim not in (1, 2) or samples.dtype.kind not in "fiu":
        raise BadBlock(f"block: {samples.dtype} {samples.shape} is not sound; give (n,) floats")
    if samples.ndim == 2 and not 1 <= samples.shape[1] <= MAX_CHANNELS:
        raise BadBlock(f"block: shape {samples.shape} is not (samples, channels)")
    floats = _floats(samples)
    loudest = _native.loudest(floats)
    if not loudest <= LOUDEST:
        what = f"peaks at {loudest:g}" if np.isfinite(loudest) else "holds NaN or infinity"
        raise BadBlock(f"block: {what}; samples must lie in -1 to 1 (this block is left out)")
    if floats.size == len(floats):  # one channel
        return floats.reshape(-1)
    mixed: Samples = floats.mean(axis=1, dtype=np.float32)
    return mixed


def _floats(samples: NDArray[np.generic]) -> Samples:
    floats = np.ascontiguousarray(samples, np.float32)
    if samples.dtype.kind == "f":
        return floats
    bits = 8 * samples.dtype.itemsize
    if samples.dtype.kind == "u":  # silence is in the middle, as in 8-bit WAV files
        floats = floats - np.float32(2.0 ** (bits - 1))
    return np.asarray(floats / np.float32(2.0 ** (bits - 1)), np.float32)


class Resampler:
    """Converts a stream to 16 kHz mono. Its rate may change; its state spans all blocks."""

    def __init__(self) -> None:
        self._rate = SAMPLE_RATE
        self._soxr: Any = None

    def push(self, block: ArrayLike, rate: int) -> Samples:
        """Return the 16 kHz samples that are complete; the last ones need more input."""
        samples = mono(block)
        if not isinstance(rate, int | float) or not RATES[0] <= rate <= RATES[1]:
            raise BadBlock(f"sample rate {rate} Hz is outside {RATES[0]} to {RATES[1]} Hz")
        if rate == self._rate:
            return self._convert(samples)
        rest = self.flush()
        self._rate = rate
        return np.concatenate([rest, self._convert(samples)])

    def flush(self) -> Samples:
        """Return the samples that were held back, at the end of the stream or of one rate."""
        rest = self._convert(np.zeros(0, np.float32), last=True)
        self._soxr = None
        return rest

    def _convert(self, samples: Samples, last: bool = False) -> Samples:
        if self._rate == SAMPLE_RATE:
            return samples
        if self._soxr is None:
            if last:
                return samples
            import soxr

            self._soxr = soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32")
        return np.asarray(self._soxr.resample_chunk(samples, last=last))


class RecentSound:
    """The newest samples of a stream, at least `kept`, in a buffer of fixed size.

    Blocks have at most `longest` samples. The buffer is written from left to right; at its end the
    newest `kept` samples move to its start.
    """

    def __init__(self, kept: int, longest: int) -> None:
        self._kept = kept
        self._buffer = np.zeros(kept + 2 * longest, np.float32)
        self._used = 0
        self.total = 0  # samples since the start

    def push(self, samples: Samples) -> None:
        if self._used + len(samples) > len(self._buffer):
            self._buffer[: self._kept] = self._buffer[self._used - self._kept : self._used]
            self._used = self._kept
        self._buffer[self._used : self._used + len(samples)] = samples
        self._used += len(samples)
        self.total += len(samples)

    def cut(self, start: int, end: int) -> Samples:
        """Return a copy of samples `start` to `end`. Before the stream began they are zero."""
        oldest = self.total - self._used
        if not (isinstance(start, Integral) and isinstance(end, Integral)):
            raise DeltakwtError(f"samples {start!r} to {end!r}: must be whole numbers")
        if end > self.total or max(start, 0) < oldest or start > end:
            raise DeltakwtError(
                f"samples {start} to {end} are not held; {oldest} to {self.total} are"
            )
        known = self._buffer[max(start, 0) - oldest : max(end, 0) - oldest]
        missing = end - start - len(known)
        return np.concatenate([np.zeros(missing, np.float32), known]) if missing else known.copy()


@dataclass(frozen=True)
class Format:
    """How the bytes of a stream are to be read."""

    kind: str = "s16"
    rate: int = 16_000
    channels: int = 1

    def __post_init__(self) -> None:
        if self.kind not in SAMPLE_BYTES:
            kinds = ", ".join(SAMPLE_BYTES)
            raise DeltakwtError(f"sample format {self.kind!r}: must be one of {kinds}")
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise DeltakwtError(f"{self.channels} channels: must be 1 to {MAX_CHANNELS}")
        if not RATES[0] <= self.rate <= RATES[1]:
            raise DeltakwtError(f"sample rate {self.rate} Hz: must be {RATES[0]} to {RATES[1]} Hz")

    @property
    def frame(self) -> int:
        """Bytes of one sample of all channels."""
        return SAMPLE_BYTES[self.kind] * self.channels

    def decode(self, data: bytes) -> Samples:
        """Return whole frames as (n, channels) in [-1, 1]."""
        stored = decode_pcm(data, self.kind, self.channels)
        samples: Samples = stored.astype(np.float32)
        if self.kind == "u8":
            return samples / np.float32(128) - 1
        if self.kind == "f32":
            return samples
        return samples / np.float32(2 ** (8 * stored.itemsize - 1))


def decode_pcm(data: bytes, kind: str, channels: int) -> NDArray[Any]:
    """Return whole frames of PCM as (n, channels) integers or floats.

    Integers of 24 bits become the upper bits of 32.
    """
    stored: NDArray[Any]
    if kind == "s24":
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        stored = wide.view("<i4")[:, 0]
    else:
        types = {"u8": "u1", "s16": "<i2", "s32": "<i4", "f32": "<f4"}
        stored = np.frombuffer(data, types[kind])
    return stored.reshape(-1, channels)


def read_stream(pipe: BinaryIO, raw: Format, seconds: float) -> Iterator[tuple[Samples, int]]:
    """Yield blocks of about `seconds` and their rate until the pipe is closed.

    A stream that begins as a WAV file is read by its header, any other as `raw`. What has arrived
    is yielded at once, so a slow writer adds no delay. A stream without sound, or a WAV file that
    ends before the length in its header, raises `SourceLost` after its last block.
    """
    head = _exactly(pipe, 4)
    if head == b"fLaC":
        raise DeltakwtError(
            "stdin: FLAC cannot be decoded from a pipe; give the file's name to --input,"
            " or pipe it through: flac -dc"
        )
    form, left, size = raw, head, None
    if head == b"RIFF":
        (form, size), left = _wav_header(pipe), b""
    block = max(1, round(seconds * form.rate)) * form.frame
    read = getattr(pipe, "read1", pipe.read)
    count = len(left)
    while data := read(block if size is None else min(block, size - count)):
        left, count = left + data, count + len(data)
        whole = len(left) - len(left) % form.frame
        if whole:
            yield form.decode(left[:whole]), form.rate
        left = left[whole:]
    if count < form.frame:
        raise SourceLost("stdin: ended without sound; did the program that feeds it fail?")
    if size is not None and count < size:
        raise SourceLost(f"stdin: ended early, after {count} of {size} bytes of sound")


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < size and (more := pipe.read(size - len(data))):
        data += more
    return data


def _wav_header(pipe: BinaryIO) -> tuple[Format, int | None]:
    """Read a WAV header after its "RIFF", up to the first sample.

    Return the format and the bytes of sound, None if the header does not know them.
    """
    if _exactly(pipe, 8)[4:] != b"WAVE":
        raise DeltakwtError("stdin: begins like a WAV file but is not one")
    form: Format | None = None
    total = 0
    while len(chunk := _exactly(pipe, 8)) == 8:
        name, size = struct.unpack("<4sI", chunk)
        if name == b"data":
            if form is None:
                break
            return form, size if 0 < size < UNKNOWN_SIZE else None
        total += size
        if total > MAX_HEADER:
            break
        body = _exactly(pipe, size + size % 2)
        if name == b"fmt ":
            form = _wav_format(body)
    raise DeltakwtError("stdin: the WAV header is damaged or cut short")


def _wav_format(body: bytes) -> Format:
    if len(body) < 16:
        raise DeltakwtError("stdin: the WAV header is damaged or cut short")
    tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
    if tag == EXTENSIBLE and len(body) >= 26:
        tag = struct.unpack("<H", body[24:26])[0]
    kinds = {(1, 8): "u8", (1, 16): "s16", (1, 24): "s24", (1, 32): "s32", (3, 32): "f32"}
    if (tag, bits) not in kinds:
        raise DeltakwtError(
            f"stdin: WAV format {tag} with {bits} bits is not supported; send 16-bit PCM"
        )
    return Format(kinds[tag, bits], rate, channels)
