"""The delta Keyword Transformer in 16-bit integers: the definition that the native code must equal.

Every operation between the 16-bit features and the logits is on integers, in a fixed order, so
every correct implementation gives the same bits. docs/fixed-point.md explains the formats and says
why they were chosen. This file is written to be read, not to be fast. It uses int32 and int64
arrays to hold values of 16 and 32 bits; each function says which range its result has.

A tensor has one exponent e: an integer i stands for i / 2^e. The exponents are in
`deltakwt.core.fixed_scales`, together with the conversion of float weights to `FixedWeights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.reference import UNTOUCHED
from deltakwt.core.setting import ALL_SITES

Ints = NDArray[Any]  # int32 or int64

LOWEST, HIGHEST = -32768, 32767  # of a 16-bit value
# Tensors whose largest magnitude every run reports. "x" is the input of a layer.
# "deltas" are the differences that are multiplied.
PEAKS = (
    *("x", "qkv", "scores", "heads", "proj", "sum1", "mlp_in", "hidden", "mlp_out", "sum2"),
    "deltas",
)

# Polynomials in a variable in [0, 1), lowest power first. GELU's has 14 fraction bits, exp's 15.
GELU_TERMS = (16366, -12563, -20160, 22398, -4492)  # (2 Phi(-4 s))^(1/4)
EXP2_TERMS = (32766, -22643, 7539, -1278)  # 2^-f
RSQRT_TERMS = (43760, 53829, 26848)  # 1/sqrt(v) ~ a - b v + c v^2 for v in [1/4, 1), 14 bits
LOG2_E_HALF = 23637  # log2(e) / 2 with 15 fraction bits


# ------------------------------------------------------------------ arithmetic


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
    """Add the rows of products (k, n) to start (n) in order, saturating to 16 bits each time."""
    sums = start + np.cumsum(products, axis=0, dtype=np.int32)
    if not len(sums):
        return start
    if sums.max() <= HIGHEST and sums.min() >= LOWEST:  # nothing saturates on the way
        return np.asarray(sums[-1])
    for row in products:
        start = saturate(start + row)
    return start


def multiply(x: Ints, w: Ints, bias: Ints) -> Ints:
    """(rows, k) times (k, n), plus bias (n): rounded products, added in order of k."""
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
    p = saturate(2 * p)  # 15 fraction bits
    for _ in range(2):
        p = q15(p, p)
    return np.asarray(np.maximum(x, 0) - rounding_shift(q15(u, p), 14 - bits))


def softmax(scores: Ints, bits: int) -> Ints:
    """(rows, n) with `bits` <= 12 fraction bits -> probabilities with 15 fraction bits."""
    out = np.empty_like(scores)
    y_bits = bits - 1
    for t, row in enumerate(scores):
        z = saturate(row.max() - row)
        y = np.minimum(q15(z, LOG2_E_HALF), (16 << y_bits) - 1)  # z log2(e), y_bits fraction bits
        whole, f = y >> y_bits, (y << 15 - y_bits) & HIGHEST
        power = np.full_like(row, EXP2_TERMS[-1])
        for term in EXP2_TERMS[-2::-1]:
            power = q15(power, f) + term
        power = (power + (1 << whole >> 1)) >> whole  # 2^-y, 15 fraction bits
        total = int(power.sum())
        k = max(total.bit_length() - 16, 0)
        inverse = min((1 << 30) // (total >> k), HIGHEST)
        out[t] = rounding_shift(q15(power, inverse), k)
    return out


# ------------------------------------------------------------------ deltas


@dataclass(frozen=True)
class Encoded:
    """Rows as differences from the row before, as in `reference.Encoded`. All (rows, width)."""

    delta: Ints  # the first `untouched` rows hold the values themselves
    reference: Ints  # the value of each feature when its delta was last kept
    kept: NDArray[np.bool_]
    untouched: int

    @property
    def peak(self) -> int:
        """The largest magnitude of a delta."""
        return int(np.abs(self.delta[self.untouched :]).max(initial=0))

    def columns(self, part: slice) -> Encoded:
        delta, reference, kept = self.delta, self.reference, self.kept
        return Encoded(delta[:, part], reference[:, part], kept[:, part], self.untouched)


def encode(x: Ints, theta: int) -> Encoded:
    """Delta encode rows with an integer threshold; below zero every row stays untouched.

    A difference of more than 16 bits saturates; the peak of the deltas tells.
    """
    untouched = min(UNTOUCHED if theta >= 0 else len(x), len(x))
    delta, reference, kept = x.copy(), x.copy(), np.ones(x.shape, np.bool_)
    for t in range(untouched, len(x)):
        change = saturate(x[t] - reference[t - 1])
        kept[t] = np.abs(change) > theta
        delta[t] = np.where(kept[t], change, 0)
        reference[t] = np.where(kept[t], x[t], reference[t - 1])
    return Encoded(delta, reference, kept, untouched)


def delta_multiply(x: Encoded, w: Ints, bias: Ints) -> tuple[Ints, int]:
    """R(t) = R(t-1) + dX(t) W for the delta rows, x W + bias for the others. Also the MACs."""
    rows = len(x.delta)
    out = np.empty((rows, w.shape[1]), np.int32)
    out[: x.untouched] = multiply(x.delta[: x.untouched], w, bias)
    for t in range(x.untouched, rows):
        (kept,) = np.nonzero(x.kept[t])
        out[t] = accumulate(out[t - 1], q15(x.delta[t, kept, None], w[kept]))
    return out, int(x.kept.sum()) * w.shape[1]


# ------------------------------------------------------------------ the model


@dataclass(frozen=True)
class FixedLayer:
    """The integers of one layer. Weights and biases have 16 bits, weights at least -32767."""

    q: Ints  # (d, d), divided by sqrt(head_dim)
    k: Ints  # (d, d)
    v: Ints  # (d, d)
    proj: Ints  # (d, d)
    proj_bias: Ints
    mlp_in: Ints  # (d, m)
    mlp_in_bias: Ints
    mlp_out: Ints  # (m, d)
    mlp_out_bias: Ints
    norm1: Norm
    norm2: Norm
    key_shift: int  # the keys lose so many bits before Q K^T
    score_bits: int  # fraction bits of the scores, 4..12
    hidden_bits: int  # fraction bits of the hidden layer, 4..13
    sum1_shift: int  # x loses so many bits before MHSA(x) is added to it
    sum2_shift: int  # the same for the MLP


@dataclass(frozen=True)
class FixedWeights:
    """All integers of a model."""

    config: Config
    embed: Ints  # (features, d)
    embed_shift: int
    positions: Ints  # (T, d): positions, the bias of the embedding and the class token, added up
    layers: tuple[FixedLayer, ...]
    head: Ints  # (d, labels)
    head_bias: Ints  # (labels) 32 bits
    head_bits: int  # fraction bits of the logits


@dataclass(frozen=True)
class FixedRun:
    """The result of one clip."""

    logits: Ints  # (labels) 32 bits, with FixedWeights.head_bits fraction bits
    macs: NDArray[np.int64]  # (layers, 6), in the order of macs.PRODUCTS
    nonzeros: NDArray[np.int64]  # (layers, 9), in the order of ALL_SITES
    peaks: NDArray[np.int64]  # (layers + 1, 11), in the order of PEAKS; the last row has only x
    outputs: list[Ints]  # per layer (T, d), of the last only the class token's row


def embed(weights: FixedWeights, features: Ints) -> Ints:
    """(frames, features) 16 bits -> (T, d). The sums fit 32 bits: see `fixed_scales`."""
    config = weights.config
    if features.shape != (config.frames, config.features):
        raise DeltakwtError(
            f"features of shape {features.shape}: the model takes"
            f" ({config.frames}, {config.features})"
        )
    tokens = rounding_shift(features.astype(np.int64) @ weights.embed, weights.embed_shift)
    sound = saturate(saturate(tokens) + weights.positions[1:])
    return np.vstack([weights.positions[:1], sound]).astype(np.int32)


def add(x: Ints, shift: int, r: Ints) -> Ints:
    """Return x / 2^shift + r, rounded and saturated: the input of a LayerNorm."""
    return saturate(rounding_shift(x, shift) + r)


def run(weights: FixedWeights, features: Ints, thresholds: Ints | None = None) -> FixedRun:
    """(frames, features) of 16 bits -> logits. thresholds (layers, 9) integers; None is dense."""
    config = weights.config
    if thresholds is None:
        thresholds = np.full((config.layers, len(ALL_SITES)), -1)
    x = embed(weights, features)
    macs, nonzeros, outputs = [], [], []
    peaks = np.zeros((config.layers + 1, len(PEAKS)), np.int64)
    for i, layer in enumerate(weights.layers):
        theta = dict(zip(ALL_SITES, map(int, thresholds[i]), strict=True))
        peak = {"x": x}
        r, site, mhsa_macs = attention(config, layer, x, theta, peak, i == config.layers - 1)
        peak["sum1"] = add(x[: len(r)], layer.sum1_shift, r)
        x = layer_norm(layer.norm1, peak["sum1"])
        r, mlp_site, mlp_macs = feed_forward(layer, x, theta, peak)
        peak["sum2"] = add(x, layer.sum2_shift, r)
        x = layer_norm(layer.norm2, peak["sum2"])
        site |= mlp_site
        macs.append(mhsa_macs + mlp_macs)
        nonzeros.append([int(site[name].sum()) for name in ALL_SITES])
        outputs.append(x)
        peaks[i] = [np.abs(peak[name]).max() for name in PEAKS]
    peaks[-1, 0] = np.abs(x).max()
    logits = x[0].astype(np.int64) @ weights.head + weights.head_bias
    return FixedRun(logits, np.array(macs), np.array(nonzeros), peaks, outputs)


Kept = dict[str, NDArray[np.bool_]]  # by site


def attention(
    config: Config,
    layer: FixedLayer,
    x: Ints,
    theta: dict[str, int],
    peak: dict[str, Ints],
    last: bool,
) -> tuple[Ints, Kept, list[int]]:
    """(T, d) -> MHSA(x), of the last layer only the class token's row; kept deltas; MACs."""
    d, width = config.dim, config.head_dim
    none = np.zeros(3 * d, np.int32)
    coded = encode(x, theta["x"])
    kv, xw = delta_multiply(coded, np.hstack([layer.k, layer.v]), none[: 2 * d])
    q, xw_q = delta_multiply(encode(x[:1], -1) if last else coded, layer.q, none[:d])
    peak["qkv"] = np.append(kv, q)
    queries, keys, values = (
        encode(rows, theta[name]) for name, rows in (("q", q), ("k", kv[:, :d]), ("v", kv[:, d:]))
    )
    transposed = np.maximum(rounding_shift(keys.reference, layer.key_shift), -HIGHEST).T

    heads, scores_kept, softmax_kept, sv = np.empty_like(q), [], [], 0
    all_scores, multiplied = [], [coded, queries]
    for h in range(config.heads):
        part = slice(h * width, (h + 1) * width)
        scores, _ = delta_multiply(
            queries.columns(part), transposed[part], np.zeros(config.tokens, np.int32)
        )
        all_scores.append(scores)
        held = encode(scores, theta["scores"])
        soft = encode(softmax(held.reference, layer.score_bits), theta["softmax"])
        heads[:, part], n = delta_multiply(soft, values.reference[:, part], none[:width])
        sv += n
        multiplied.append(soft)
        scores_kept.append(held.kept)
        softmax_kept.append(soft.kept)
    peak["scores"], peak["heads"] = np.array(all_scores), heads
    coded_heads = encode(heads, theta["heads"])
    multiplied.append(coded_heads)
    peak["deltas"] = np.array([site.peak for site in multiplied])
    peak["proj"], proj = delta_multiply(coded_heads, layer.proj, layer.proj_bias)
    pairs = int(queries.kept.sum(axis=0) @ keys.kept.sum(axis=0))  # as the paper counts Q K^T
    kept = {
        "x": coded.kept,
        "q": queries.kept,
        "k": keys.kept,
        "v": values.kept,
        "scores": np.hstack(scores_kept),
        "softmax": np.hstack(softmax_kept),
        "heads": coded_heads.kept,
    }
    return peak["proj"], kept, [xw + xw_q, pairs, sv, proj]


def feed_forward(
    layer: FixedLayer, x: Ints, theta: dict[str, int], peak: dict[str, Ints]
) -> tuple[Ints, Kept, list[int]]:
    """(rows, d) -> MLP(x); kept deltas; MACs."""
    peak["mlp_in"] = x
    coded = encode(x, theta["mlp_in"])
    peak["hidden"], mlp_in = delta_multiply(coded, layer.mlp_in, layer.mlp_in_bias)
    hidden = encode(gelu(peak["hidden"], layer.hidden_bits), theta["mlp_hidden"])
    peak["deltas"] = np.append(peak["deltas"], [coded.peak, hidden.peak])
    peak["mlp_out"], mlp_out = delta_multiply(hidden, layer.mlp_out, layer.mlp_out_bias)
    return peak["mlp_out"], {"mlp_in": coded.kept, "mlp_hidden": hidden.kept}, [mlp_in, mlp_out]
