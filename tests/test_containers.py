"""Sound files with very large tags or packets are refused; all others are read as before."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from deltakwt.audio import read_clip
from deltakwt.containers import MAX_PART_BYTES, _checksum, _pages
from deltakwt.core.errors import DeltakwtError

FULL = 255 * 255  # bytes of the largest page that ends no packet


def sound() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)


def ogg(path: Path) -> bytes:
    soundfile.write(path / "real.ogg", sound(), 16_000, format="OGG", subtype="VORBIS")
    return (path / "real.ogg").read_bytes()


def page(body: bytes, segments: bytes, number: int, stream: bytes, kind: int = 1) -> bytes:
    head = struct.pack("<4sBBq4sIIB", b"OggS", 0, kind, -1, stream, number, 0, len(segments))
    whole = head + segments + body
    return whole[:22] + struct.pack("<I", _checksum(whole)) + whole[26:]


def large_comment(path: Path, size: int = 100 << 20, between: bytes = b"") -> Path:
    """An Ogg file whose second packet, the comments, has `size` bytes and never ends."""
    real = ogg(path)
    stream, first = real[14:18], 28 + real[27]
    text = b"\x03vorbis" + struct.pack("<IIII", 0, 1, 1 << 30, 0)
    with (path / "large.ogg").open("wb") as file:
        file.write(real[:first])
        for number in range(1, size // FULL + 1):
            body = text.ljust(FULL, b"a") if number == 1 else b"a" * FULL
            file.write(page(body, b"\xff" * 255, number, stream, int(number > 1)) + between)
    return path / "large.ogg"


def large_tag(path: Path, size: int = 200 << 20, count: int = 1) -> Path:
    """An MP3 file behind ID3 tags of that size."""
    length = bytes(size >> shift & 127 for shift in (21, 14, 7, 0))
    soundfile.write(path / "real.mp3", sound(), 16_000, format="MP3")
    with (path / "large.mp3").open("wb") as file:
        for _ in range(count):
            file.write(b"ID3\x03\0\0" + length + b"TIT2" + struct.pack(">I", size - 20) + b"\0\0")
            file.seek(size - 10, 1)  # a sparse file: no disk space is used
        file.write((path / "real.mp3").read_bytes())
    return path / "large.mp3"


def test_every_page_of_a_real_file_is_found(tmp_path: Path) -> None:
    content = ogg(tmp_path)
    with (tmp_path / "real.ogg").open("rb") as file:
        assert b"".join(_pages("real.ogg", file.fileno())) == content
    assert np.abs(read_clip(tmp_path / "real.ogg") - sound()).mean() < 0.05


def test_a_file_with_bytes_between_its_pages_is_read(tmp_path: Path) -> None:
    content = ogg(tmp_path)
    last = content.rindex(b"OggS")
    (tmp_path / "gap.ogg").write_bytes(content[:last] + b"OggS\0" * 9 + content[last:])
    with (tmp_path / "gap.ogg").open("rb") as file:
        assert b"".join(_pages("gap.ogg", file.fileno())) == content


@pytest.mark.parametrize(
    "between",
    [
        b"",
        page(b"", b"\x00", 7, b"abcd"),  # of another stream
        page(b"", b"\x00", 7, b"abcd")[:-1] + b"\x01",  # damaged
        b"noise",
    ],
    ids=["nothing", "other stream", "damaged page", "noise"],
)
def test_a_packet_that_never_ends_is_refused(tmp_path: Path, between: bytes) -> None:
    path = large_comment(tmp_path, MAX_PART_BYTES + (1 << 20), between)
    with pytest.raises(DeltakwtError, match=r"large\.ogg: a packet of more than 16 MiB"):
        read_clip(path)


def test_pages_that_end_a_packet_in_vain_are_refused(tmp_path: Path) -> None:
    """The decoder does not see them, since their checksum is wrong; each costs time."""
    real = ogg(tmp_path)
    (tmp_path / "a.ogg").write_bytes(real + (b"OggS\0" + bytes(22)) * 1_200)
    with pytest.raises(DeltakwtError, match="more than 1000 damaged pages"):
        read_clip(tmp_path / "a.ogg")


def test_a_large_tag_is_refused_and_others_are_not(tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match=r"large\.mp3: an ID3 tag of more than 16 MiB"):
        read_clip(large_tag(tmp_path))
    for count in (1, 3):
        assert np.abs(read_clip(large_tag(tmp_path, 1 << 20, count))).max() > 0.1
