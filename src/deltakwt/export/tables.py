"""The front end's tables as constants: the same numbers that the core computes at its start."""

from __future__ import annotations

from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import FEATURES, FFT_SAMPLES, FRAME_SAMPLES, MEL_BANDS
from deltakwt.core.frontend import mel_matrix
from deltakwt.export.arrays import TYPES, numbers, wrapped

HALF = FFT_SAMPLES // 2  # points of the complex FFT
MEL_ROOM = 2 * (HALF + 1)  # weights that the core has room for


def mel_bands() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """First bin and number of bins of each band; the weights of all, halved, band after band."""
    first, bins, weights = [], [], []
    for band in mel_matrix().T:
        (used,) = np.nonzero(band[:HALF])
        first.append(used[0] if len(used) else 0)
        bins.append(len(used))
        weights += [value / 2 for value in band[used]]
    padded = np.zeros(MEL_ROOM, np.float32)
    padded[: len(weights)] = weights
    return np.array(first, np.uint16), np.array(bins, np.uint16), padded


def tables() -> dict[str, NDArray[Any]]:
    """The members of the core's struct dk_frontend, in their order."""
    n, k = np.arange(FRAME_SAMPLES), np.arange(HALF)
    dct = [
        [
            2 * cos(pi * (2 * band + 1) * c / (2 * MEL_BANDS)) / sqrt(2 * MEL_BANDS)
            for c in range(FEATURES)
        ]
        for band in range(MEL_BANDS)
    ]
    first, bins, mel = mel_bands()
    digits = [(k & 3) << 6, (k >> 2 & 3) << 4, (k >> 4 & 3) << 2, k >> 6]  # base 4, reversed
    quarter = range(HALF // 2 + 1)
    return {
        "dct_data": np.array(dct, np.float32),
        "window": np.array([0.5 - 0.5 * cos(2 * pi * i / FRAME_SAMPLES) for i in n], np.float32),
        "cosine": np.array([cos(2 * pi * i / HALF) for i in k], np.float32),
        "sine": np.array([-sin(2 * pi * i / HALF) for i in k], np.float32),
        "half_cosine": np.array([cos(2 * pi * i / FFT_SAMPLES) for i in quarter], np.float32),
        "half_sine": np.array([-sin(2 * pi * i / FFT_SAMPLES) for i in quarter], np.float32),
        "place": np.sum(digits, axis=0).astype(np.uint8),
        "first": first,
        "bins": bins,
        "mel": mel,
    }


def tables_source() -> str:
    """tables.c"""
    members = [
        f"    {{ /* {TYPES[table.dtype]} {name} */\n{wrapped(numbers(table))}\n    }},"
        for name, table in tables().items()
    ]
    return (
        "/* The front end's tables: window, FFT, mel bands, DCT. */\n"
        '#include "engine.h"\n#include "internal.h"\n\n'
        "const dk_frontend dk_flash_frontend = {\n    &dk_scalar,\n"
        "    {dk_flash_frontend.dct_data, NULL, DK_BANDS, DK_COEFFICIENTS, DK_DCT_STRIDE,\n"
        "     DK_F32},\n" + "\n".join(members) + "\n};\n"
    )
