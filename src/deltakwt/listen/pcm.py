"""Sound from a pipe: raw PCM, or WAV whose length nobody knows yet, decoded as it comes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import MAX_CHANNELS, RATES
from deltakwt.core.errors import DeltakwtError

KINDS = {"u8": 1, "s16": 2, "s24": 3, "s32": 4, "f32": 4}  # little-endian; bytes of a sample
MAX_HEADER = 1 << 20  # bytes of WAV chunks before the sound
EXTENSIBLE = 0xFFFE


@dataclass(frozen=True)
class Format:
    """How the bytes of a stream are to be read."""

    kind: str = "s16"
    rate: int = 16_000
    channels: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeltakwtError(f"sample format {self.kind!r}: must be one of {', '.join(KINDS)}")
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise DeltakwtError(f"{self.channels} channels: must be 1 to {MAX_CHANNELS}")
        if not RATES[0] <= self.rate <= RATES[1]:
            raise DeltakwtError(f"sample rate {self.rate} Hz: must be {RATES[0]} to {RATES[1]} Hz")

    @property
    def frame(self) -> int:
        """Bytes of one sample of all channels."""
        return KINDS[self.kind] * self.channels

    def decode(self, data: bytes) -> NDArray[np.float32]:
        """Whole frames -> (n, channels) in [-1, 1]."""
        if self.kind == "f32":
            samples = np.frombuffer(data, "<f4").astype(np.float32)
        elif self.kind == "u8":
            samples = np.frombuffer(data, np.uint8).astype(np.float32) / np.float32(128) - 1
        elif self.kind == "s24":
            wide = np.zeros((len(data) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            samples = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
        else:
            size = KINDS[self.kind]
            full = np.float32(2 ** (8 * size - 1))
            samples = np.frombuffer(data, f"<i{size}").astype(np.float32) / full
        return samples.reshape(-1, self.channels)


def read_stream(
    pipe: BinaryIO, raw: Format, seconds: float
) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Blocks of about `seconds` and their rate, until the pipe is closed.

    A stream that begins as a WAV file is read by its header, anything else as `raw`. Whatever is
    there is handed on at once, so a slow writer does not add delay.
    """
    head = _exactly(pipe, 4)
    if head == b"fLaC":
        raise DeltakwtError(
            "stdin: FLAC cannot be decoded from a pipe; give the file's name to --input,"
            " or pipe it through: flac -dc"
        )
    form, left = (_wav_header(pipe), b"") if head == b"RIFF" else (raw, head)
    size = max(1, round(seconds * form.rate)) * form.frame
    read = getattr(pipe, "read1", pipe.read)
    while data := read(size):
        left += data
        whole = len(left) - len(left) % form.frame
        if whole:
            yield form.decode(left[:whole]), form.rate
        left = left[whole:]


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    """`size` bytes, fewer only at the end of the stream."""
    data = b""
    while len(data) < size and (more := pipe.read(size - len(data))):
        data += more
    return data


def _wav_header(pipe: BinaryIO) -> Format:
    """The format of a WAV stream after its "RIFF"; leaves the pipe at the first sample."""
    if _exactly(pipe, 8)[4:] != b"WAVE":
        raise DeltakwtError("stdin: begins like a WAV file but is none")
    form: Format | None = None
    total = 0
    while len(chunk := _exactly(pipe, 8)) == 8:
        name, size = struct.unpack("<4sI", chunk)
        if name == b"data":
            if form is None:
                break
            return form
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
