"""Delta-encoded tensors as bytes: two formats that are really written and read back.

The paper says that deltas compress the tensors between the operations, and gives no number. Here a
tensor (rows, width) of 32-bit values is stored row by row; a row of scores or softmax has one list
for each head.

- bitmap: one bit per value says whether it changed; the changed values follow.
- index: the number of changed values, then the position of each; the values follow.

The first two rows are never delta encoded and are stored as they are. A tensor in which every value
changed is stored dense, because no list would make it smaller. What is stored is the new value of a
feature, so that decoding gives back every reference to the bit; a stored difference would take the
same bytes and add up rounding errors. `evaluate.counts` counts the same bytes without writing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import EXACT_ROWS
from deltakwt.core.setting import ALL_SITES

Values = NDArray[np.float32]  # (rows, width)
Mask = NDArray[np.bool_]  # (rows, width)

HEADER = struct.Struct("<BBHI")  # format, lists per row, rows, width
FORMATS = {"dense": 0, "bitmap": 1, "index": 2}
NAMES = {number: name for name, number in FORMATS.items()}


def encode(references: Values, kept: Mask, form: str, lists: int = 1) -> bytes:
    """Return a tensor as bytes, its header included.

    `references` are the rows that the deltas add up to, `kept` says where a value changed; both are
    in a trace of the engine. `lists` is the number of heads side by side in a row.
    """
    rows, width = references.shape
    if kept.shape != references.shape or width % lists:
        raise DeltakwtError(f"encoding: {kept.shape} flags in {lists} lists for {rows} x {width}")
    exact = min(EXACT_ROWS, rows)
    values = np.ascontiguousarray(references, "<f4")
    if form == "dense" or kept[exact:].all():
        return HEADER.pack(FORMATS["dense"], lists, rows, width) + values.tobytes()
    write = _BY_NAME[form].write
    parts = [HEADER.pack(FORMATS[form], lists, rows, width), values[:exact].tobytes()]
    for t in range(exact, rows):
        for row, flags in zip(np.split(values[t], lists), np.split(kept[t], lists), strict=True):
            parts += [write(flags), row[flags].tobytes()]
    return b"".join(parts)


def decode(data: bytes) -> Values:
    """Return the references (rows, width) that `encode` was given, to the bit."""
    try:
        number, lists, rows, width = HEADER.unpack_from(data)
        reader = _Reader(data, HEADER.size)
        if NAMES[number] == "dense":
            return reader.values(rows * width).reshape(rows, width)
        exact = min(EXACT_ROWS, rows)
        references = np.empty((rows, width), np.float32)
        references[:exact] = reader.values(exact * width).reshape(exact, width)
        read, part = _BY_NAME[NAMES[number]].read, width // lists
        for t in range(exact, rows):
            references[t] = references[t - 1]
            for row in np.split(references[t], lists):
                changed = read(reader, part)
                row[changed] = reader.values(len(changed))
    except (struct.error, KeyError, ValueError, IndexError, ZeroDivisionError):
        raise DeltakwtError("decoding: these bytes are not an encoded tensor") from None
    return references


class _Reader:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, kind: str, count: int) -> NDArray[Any]:
        taken = np.frombuffer(self.data, kind, count, self.at)
        self.at += taken.nbytes
        return taken

    def values(self, count: int) -> Values:
        return self.take("<f4", count).astype(np.float32) if count else np.empty(0, np.float32)


@dataclass(frozen=True)
class _Format:
    """How the places of the changed values are written and read."""

    write: Callable[[Mask], bytes]
    read: Callable[[_Reader, int], NDArray[np.intp]]


def _write_bitmap(flags: Mask) -> bytes:
    return np.packbits(flags, bitorder="little").tobytes()


def _read_bitmap(reader: _Reader, width: int) -> NDArray[np.intp]:
    packed = reader.take("u1", (width + 7) // 8)
    return np.flatnonzero(np.unpackbits(packed, count=width, bitorder="little"))


def _index_type(width: int) -> str:
    return "u1" if width < 256 else "<u2"  # wide enough for the count of a full row, too


def _write_index(flags: Mask) -> bytes:
    (places,) = np.nonzero(flags)
    return np.array([len(places), *places], _index_type(len(flags))).tobytes()


def _read_index(reader: _Reader, width: int) -> NDArray[np.intp]:
    kind = _index_type(width)
    count = int(reader.take(kind, 1)[0])
    places = reader.take(kind, count).astype(np.intp) if count else np.empty(0, np.intp)
    if count and places.max() >= width:
        raise ValueError
    return places


_BY_NAME = {
    "bitmap": _Format(_write_bitmap, _read_bitmap),
    "index": _Format(_write_index, _read_index),
}


def encoded_bytes(config: Config, trace: dict[str, NDArray[Any]]) -> dict[str, dict[str, int]]:
    """Encode and decode every tensor of a clip; return {site: {format: bytes written}}.

    The bytes are those of the tensors without their headers. It is an error if a tensor does not
    come back to the bit.
    """
    total = {site: dict.fromkeys(FORMATS, 0) for site in ALL_SITES}
    for site in ALL_SITES:
        lists = config.heads if site in ("scores", "softmax") else 1
        for layer in range(config.layers):
            is_last = layer == config.layers - 1 and site not in ("x", "k", "v")
            rows = 1 if is_last else config.tokens
            references, kept = trace[site][layer, :rows], trace[f"{site}.mask"][layer, :rows]
            for form in FORMATS:
                data = encode(references, kept, form, lists)
                if not np.array_equal(decode(data), references):
                    raise DeltakwtError(f"encoding: {site} of layer {layer + 1} does not come back")
                total[site][form] += len(data) - HEADER.size
    return total
