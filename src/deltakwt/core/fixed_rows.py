"""Weights of 8 bits with a shift per row, for the fixed-point engine.

A row holds the weights of one input feature. Weight i of row r is the 16-bit integer
`bytes[r, i] << shifts[r]`, so a model with such weights is a 16-bit model whose weights happen to
be multiples of powers of two. Its results have the same bits whether a target stores 8 bits and
shifts when it multiplies, or stores 16 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.fixed_arithmetic import Ints

LARGEST = 127  # of a weight of 8 bits; -128 is not used
MOST_SHIFT = 8  # 127 << 8 is the largest weight; larger ones become that


def to_bytes(weights: Ints) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """(rows, n) integers of 16 bits -> the nearest of 8 bits, and the shift of each row.

    The shift is the smallest with which the row fits.
    """
    largest = np.abs(weights).max(axis=1)
    shifts = np.zeros(len(weights), np.uint8)
    while (over := (rounded(largest, shifts) > LARGEST) & (shifts < MOST_SHIFT)).any():
        shifts += over
    levels = np.clip(rounded(weights, shifts[:, None]), -LARGEST, LARGEST)
    return levels.astype(np.int8), shifts


def rounded(values: Ints, shifts: Ints) -> Ints:
    """Return values / 2^shifts, rounded to the nearest, halves away from zero."""
    half = (1 << shifts.astype(np.int64)) >> 1
    return np.asarray(np.sign(values) * ((np.abs(values) + half) >> shifts))


def from_bytes(values: NDArray[np.int8], shifts: NDArray[np.uint8]) -> Ints:
    """Return the 16-bit integers of weights of 8 bits."""
    return values.astype(np.int32) << shifts[:, None]


def to_nearest_bytes(weights: Ints) -> Ints:
    """Return the 16-bit integers next to the weights that 8 bits and a shift per row can hold."""
    return from_bytes(*to_bytes(weights))
