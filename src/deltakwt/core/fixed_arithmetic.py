"""Arithmetic in 16-bit integers: products, LayerNorm, GELU, softmax, and weights of 8 bits.

These definitions are part of the model that `deltakwt.core.fixed` defines. An integer i with e
fraction bits stands for i / 2^e. int32 and int64 arrays hold the values of 16 and 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]  # int32 or int64

LOWEST, HIGHEST = -32768, 32767  # of a 16-bit value

# Polynomials in a variable in [0, 1), lowest power first. GELU's has 14 fraction bits, exp's 15.
GELU_TERMS = (16366, -12563, -20160, 22398, -4492)  # (2 Phi(-4 s))^(1/4)
EXP2_TERMS = (32766, -22643, 7539, -1278)  # 2^-f
RSQRT_TERMS = (43760, 53829, 26848)  # 1/sqrt(v) ~ a - b v + c v^2 for v in [1/4, 1), 14 bits
LOG2_E_HALF = 23637  # log2(e) / 2 with 15 fraction bits


def saturate(values: Ints) -> Ints:
    """Return the values limited to 16 bits."""
    return np.clip(values, LOWEST, HIGHEST)


def q15(a: Any, b: Any) -> Ints:
    """Return the rounded product (a b + 2^14) >> 15. At most one of a and b may be -32768."""
    return np.asarray((np.asarray(a, np.int32) * b + 0x4000) >> 15)


def rounding_shift(values: Any, bits: int) -> Ints:
    """Return values / 2^bits, rounded to the nearest integer, halves upwards."""
    return np.asarray((values + (1 << bits >> 1)) >> bits)


def accumulate(start: Ints, products: Ints) -> Ints:
    """Return start (n) plus the rows of products (k, n), modulo 2^16: the order does not matter."""
    total = start + products.sum(axis=0, dtype=np.int32)
    return np.asarray(((total - LOWEST) & 0xFFFF) + LOWEST)


def multiply(x: Ints, w: Ints, bias: Ints) -> Ints:
    """(rows, k) times (k, n), plus bias (n): rounded products, added modulo 2^16."""
    return np.array([accumulate(bias, q15(row[:, None], w)) for row in x])


def reciprocal_root(v: int) -> int:
    """Return 2^29 / sqrt(v) for v in [2^28, 2^30): at most 32767. Uses unsigned 32 bits only."""
    a, b, c = RSQRT_TERMS
    v = (v + (1 << 13)) >> 14  # 16 fraction bits
    y = a - ((b - (c * v >> 16)) * v >> 16)  # 14 fraction bits, wrong by 2.5% at most
    for _ in range(2):  # Newton: y (3 - v y^2) / 2
        square = (y * y + (1 << 13)) >> 14
        y = (y * ((3 << 30) - v * square >> 15) + (1 << 15)) >> 16
    return min(y, HIGHEST)


@dataclass(frozen=True)
class Norm:
    """A LayerNorm: y = (c' g + 2^(shift-1)) >> shift + bias, see `layer_norm`."""

    gain: Ints  # (n) 16 bits: gain * sqrt(n)
    bias: Ints  # (n) 16 bits, in the format of the result
    epsilon: int  # n * eps in the format of the squared sum, at least 1
    shift: int  # 1..30


def layer_norm(norm: Norm, a: Ints) -> Ints:
    """(rows, n) -> (rows, n) normalised."""
    n = a.shape[1]
    out = np.empty_like(a)
    for t, row in enumerate(a):
        mean = (2 * int(row.sum()) + n) // (2 * n)
        centred = saturate(row - mean)
        total = int((centred.astype(np.int64) ** 2).sum()) + norm.epsilon
        p = (30 - total.bit_length()) // 2  # total * 4^p lies in [2^28, 2^30)
        total = total << 2 * p if p >= 0 else total >> -2 * p
        centred = centred << p if p >= 0 else centred >> -p  # fits 16 bits: c^2 <= total
        factor = q15(norm.gain, reciprocal_root(total))
        out[t] = saturate(saturate(rounding_shift(centred * factor, norm.shift)) + norm.bias)
    return out


def gelu(x: Ints, bits: int) -> Ints:
    """Return GELU(x) in the format of x, which has `bits` <= 13 fraction bits.

    GELU(x) = max(x, 0) - u Phi(-u) with u = |x|, and 2 Phi(-u) is the fourth power of a
    polynomial in u / 4. Beyond u = 4 the second term is taken at 4, where it rounds to zero.
    """
    u = np.minimum(np.abs(x), (4 << bits) - 1) << (13 - bits)  # 15 fraction bits of u / 4
    p = np.full_like(x, GELU_TERMS[-1])
    for term in GELU_TERMS[-2::-1]:
        p = q15(p, u) + term
    p = 2 * p  # 15 fraction bits
    for _ in range(2):
        p = q15(p, p)
    return np.asarray(np.maximum(x, 0) - rounding_shift(q15(u, p), 14 - bits))


def softmax(scores: Ints, bits: int) -> Ints:
    """(rows, n) with `bits` <= 12 fraction bits -> probabilities with 15 fraction bits."""
    out = np.empty_like(scores)
    y_bits = bits - 1
    for t, row in enumerate(scores):
        z = saturate(row.max() - row)
        y = np.minimum(q15(z, LOG2_E_HALF), (17 << y_bits) - 1)  # z log2(e), y_bits fraction bits
        whole, f = y >> y_bits, (y << 15 - y_bits) & HIGHEST
        power = np.full_like(row, EXP2_TERMS[-1])
        for term in EXP2_TERMS[-2::-1]:
            power = q15(power, f) + term
        power = (power + (1 << whole >> 1)) >> whole  # 2^-y, 15 fraction bits; 0 from y = 16 on
        total = int(power.sum())
        k = max(total.bit_length() - 16, 0)
        inverse = min((1 << 30) // (total >> k), HIGHEST)
        out[t] = rounding_shift(q15(power, inverse), k)
    return out


# ------------------------------------------------------------------ weights of 8 bits
#
# A row holds the weights of one input feature. Weight i of row r is the 16-bit integer
# bytes[r, i] << shifts[r]. So a model with such weights is a 16-bit model: it gives the same bits
# whether a target stores 8 bits and shifts when it multiplies, or stores 16 bits.

LARGEST = 127  # of a weight of 8 bits; -128 is not used
MOST_SHIFT = 8  # 127 << 8 is the largest weight; larger ones become that


def to_bytes(weights: Ints) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """(rows, n) integers of 16 bits -> the nearest bytes (rows, n), and the shift of each row.

    The shift is the smallest one with which the row fits into 8 bits.
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
    """Return the weights, each rounded to the nearest value that 8 bits and a shift can hold."""
    return from_bytes(*to_bytes(weights))
