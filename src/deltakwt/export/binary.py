"""Write a model file: one flat file that the C library maps and checks without Python.

All numbers are little-endian. A header of 160 bytes is followed by the text (name of the model and
of the setting, labels; UTF-8, each ended by a zero byte), the `on` values of the labels, the
thresholds, and the weights. Every tensor starts at a multiple of 64 bytes. Float weights come in
the order of `Config.shapes`. docs/c-library.md describes every field; native/src/model_file.c reads
and checks them.

The weights of a model in fixed point, which native/src/stored_integers.c reads, are

    f64 (layers, 9)      what thresholds are multiplied by
    f32 (features + 1)   what features are multiplied by; the value of 1 in the logits
    i32 (labels)         bias of the head
    i32 (1 + 9 layers)   shifts, bits and epsilons, in the order of `native_numbers`
    i16                  tensors, in the order of `native_tensors`
"""

from __future__ import annotations

import struct
import unicodedata
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import native_numbers, native_tensors
from deltakwt.core.fixed_weights import Scales, quantize, threshold_scales
from deltakwt.export.model import Export, write_file
from deltakwt.listen.decision import POSSIBLE_WORD

MAGIC, VERSION, BYTE_ORDER_MARK = b"DELTAKWT", 1, 0x01020304
HAS_THRESHOLDS, IS_FIXED, STRIDE = 1, 2, 0x100  # flags; the last one times the stride less one
ALIGNMENT = 64
# magic, version, byte order, file size, CRC-32, header size
START = struct.Struct("<8sIIQII")
# shape (7) and flags; floor, quantile; smooth, hop, onset, outliers; reuse, possible, off; smoothed
# windows, patience, refractory; text size, unknown_bias; offsets of text, on, thresholds, weights
REST = struct.Struct("<8I2d4I3f3IIf4Q")


def write_model_file(export: Export, path: Path) -> int:
    """Write the model file of an export and return its size in bytes."""
    return write_file(path, model_file(export), "bin")


def model_file(export: Export) -> bytes:
    """Return the bytes of the model file of an export."""
    config, setting = export.config, export.setting
    text = b"".join(
        _printable(part).encode() + b"\0" for part in (export.name, str(setting), *config.labels)
    )
    on = export.decision.thresholds(config.labels)
    thresholds = (
        np.zeros(0, np.float32)
        if setting.thresholds is None
        else setting.thresholds.array(config.layers)
    )
    body, offsets = bytearray(), []
    for part, alignment in (
        (text, 1),
        (_bytes(on), 4),
        (_bytes(thresholds), 4),
        (_weights(export), ALIGNMENT),
    ):
        _pad(body, alignment, START.size + REST.size)
        offsets.append(START.size + REST.size + len(body))
        body += part
    checked = _rest(export, len(text), offsets) + bytes(body)
    size = START.size + len(checked)
    start = START.pack(
        MAGIC, VERSION, BYTE_ORDER_MARK, size, zlib.crc32(checked), START.size + REST.size
    )
    return start + checked


def _rest(export: Export, text_size: int, offsets: list[int]) -> bytes:
    """Return the part of the header that the checksum covers."""
    c, setting, decision = export.config, export.setting, export.decision
    return REST.pack(
        *(c.dim, c.heads, c.mlp, c.layers, len(c.labels), c.frames, c.features),
        (0 if setting.thresholds is None else HAS_THRESHOLDS)
        | (0 if export.scales is None else IS_FIXED)
        | STRIDE * (c.stride - 1),
        setting.front_end.floor,
        setting.front_end.quantile,
        setting.front_end.smooth,
        *(decision.hop_frames, decision.rows(c.stride)[1], decision.outliers_allowed),
        *(decision.reuse, POSSIBLE_WORD, decision.off),
        *(decision.smooth, decision.patience, decision.refractory_windows),
        *(text_size, decision.unknown_bias),
        *offsets,
    )


def _weights(export: Export) -> bytes:
    """Return all tensors, each one filled up to a multiple of 64 bytes."""
    if export.scales is not None:
        return b"".join(integer_parts(export.config, export.tensors, export.scales))
    data = bytearray()
    for name in export.config.shapes():
        data += _bytes(export.tensors[name])
        _pad(data, ALIGNMENT)
    return bytes(data)


def _bytes(array: NDArray[np.float32]) -> bytes:
    return np.ascontiguousarray(array, "<f4").tobytes()


def _pad(data: bytearray, alignment: int, before: int = 0) -> None:
    data += bytes(-(before + len(data)) % alignment)


def _printable(text: str) -> str:
    """Refuse text that the C library would refuse: control characters."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise DeltakwtError(f"{text!r}: a name or label with a control character; rename it")
    return text


def integer_parts(
    config: Config, tensors: dict[str, NDArray[np.float32]], scales: Scales
) -> tuple[bytes, bytes]:
    """Return the scales and numbers of a model, and its 16-bit tensors."""
    weights = quantize(config, tensors, scales)
    features = 2.0 ** np.array(scales.features, np.float64)
    before = (
        threshold_scales(config, scales).astype("<f8"),
        np.append(features, 2.0**-weights.head_bits).astype("<f4"),
        weights.head_bias.astype("<i4"),
        native_numbers(weights).astype("<i4"),
    )
    parts = (tensor.astype("<i2") for tensor in native_tensors(weights))
    return b"".join(map(_filled, before)), b"".join(map(_filled, parts))


def _filled(array: NDArray[np.generic]) -> bytes:
    data = array.tobytes()
    return data + bytes(-len(data) % ALIGNMENT)
