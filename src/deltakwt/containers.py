"""Refuses sound files with very large metadata before they are decoded.

The decoders hold a whole ID3 tag of an MP3 file, or packet of an Ogg file, in memory. A tag with
pictures has a few MB, a packet of sound some KB. The comments of an Ogg file are one packet.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from deltakwt.core.errors import DeltakwtError

MAX_PART_BYTES = 16 << 20  # of one tag or one packet
MAX_DAMAGED = 1_000  # damaged pages in one Ogg file; each costs a checksum
MAX_STREAMS = 100  # streams of one Ogg file that have an unfinished packet
BLOCK_BYTES = 1 << 20
PAGE_HEAD = 27  # bytes of a page header without its segment table
MAX_PAGE_BYTES = PAGE_HEAD + 255 + 255 * 255
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check_parts(name: str, file: BinaryIO) -> None:
    """Refuse a file with a very large tag or packet. The position in the file stays the same."""
    descriptor = file.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        start = _read(descriptor, 0, 10)
        if start.startswith(b"OggS"):
            _check_packets(name, descriptor)
        else:
            _check_tags(name, descriptor, start)
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def _read(descriptor: int, at: int, count: int) -> bytes:
    os.lseek(descriptor, at, os.SEEK_SET)
    return os.read(descriptor, count)


def _refuse(name: str, what: str) -> DeltakwtError:
    return DeltakwtError(f"{name}: {what} of more than {MAX_PART_BYTES >> 20} MiB; not sound")


def _check_tags(name: str, descriptor: int, start: bytes) -> None:
    """Follow the ID3 tags at the start of a file."""
    at = 0
    while start.startswith(b"ID3") and len(start) == 10:
        size = 0
        for byte in start[6:]:  # seven bits each
            size = size << 7 | byte & 127
        if size > MAX_PART_BYTES:
            raise _refuse(name, "an ID3 tag")
        at += 10 + size
        start = _read(descriptor, at, 10)


def _check_packets(name: str, descriptor: int) -> None:
    """Add up the pages of an Ogg file that continue a packet."""
    unfinished: dict[bytes, int] = {}  # stream -> bytes of its packet so far
    for page in _pages(name, descriptor):
        stream, segments = page[14:18], page[PAGE_HEAD : PAGE_HEAD + page[26]]
        if segments and min(segments) < 255:  # a packet ends in this page
            unfinished.pop(stream, None)
        else:
            unfinished[stream] = unfinished.get(stream, 0) + len(page)
            if unfinished[stream] > MAX_PART_BYTES or len(unfinished) > MAX_STREAMS:
                raise _refuse(name, "a packet")


def _pages(name: str, descriptor: int) -> Iterator[bytes]:
    """Yield the pages of an Ogg file.

    As in the decoder, a page with a wrong checksum is none, and another may begin within it.
    """
    held, at, start, damaged = b"", 0, 0, 0  # `held` begins at `start`, `at` counts in it
    while True:
        if len(held) - at < MAX_PAGE_BYTES:
            start, held, at = start + at, held[at:], 0
            held += _read(descriptor, start + len(held), BLOCK_BYTES)
        at = held.find(b"OggS", at)
        if at < 0:
            at = max(len(held) - 3, 0)
            if len(held) < BLOCK_BYTES:  # the end of the file
                return
        elif size := _page_bytes(held[at : at + MAX_PAGE_BYTES]):
            yield held[at : at + size]
            at += size
        else:
            at, damaged = at + 1, damaged + 1
            if damaged > MAX_DAMAGED:
                raise DeltakwtError(f"{name}: more than {MAX_DAMAGED} damaged pages")


def _page_bytes(held: bytes) -> int:
    """Return the size of the page at the start of `held`, 0 if there is no whole page."""
    if len(held) < PAGE_HEAD or len(held) < PAGE_HEAD + held[26]:
        return 0
    size = PAGE_HEAD + held[26] + sum(held[PAGE_HEAD : PAGE_HEAD + held[26]])
    if len(held) < size:
        return 0
    page = held[:22] + bytes(4) + held[26:size]
    return size if _checksum(page) == int.from_bytes(held[22:26], "little") else 0


def _checksum(page: bytes) -> int:
    """Return Ogg's checksum: that of zlib with the bits of all bytes in the other order."""
    reflected = zlib.crc32(page.translate(_REVERSED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int.from_bytes(reflected.to_bytes(4, "little").translate(_REVERSED), "big")
