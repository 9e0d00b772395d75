"""The delta Keyword Transformer in 16-bit integers: the definition that the native code must equal.

Every operation between the 16-bit features and the logits is on integers, in a fixed order, so
every correct implementation gives the same bits. docs/fixed-point.md explains the formats and says
why they were chosen. This file is written to be read, not to be fast. It uses int32 and int64
arrays to hold values of 16 and 32 bits; each function says which range its result has.

A tensor has one exponent e: an integer i stands for i / 2^e. The exponents, and the conversion of
float weights to `FixedWeights`, are in `deltakwt.core.fixed_weights`. The products, LayerNorm, GELU
and softmax are in `deltakwt.core.fixed_arithmetic`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_arithmetic import (
    HIGHEST,
    Ints,
    accumulate,
    gelu,
    layer_norm,
    multiply,
    q15,
    rounding_shift,
    saturate,
    softmax,
)
from deltakwt.core.fixed_weights import PEAKS, FixedLayer, FixedWeights
from deltakwt.core.reference import UNTOUCHED
from deltakwt.core.setting import ALL_SITES

# ------------------------------------------------------------------ deltas


@dataclass(frozen=True)
class EncodedInts:
    """Rows as differences from the row before, as in `reference.Encoded`. All (rows, width)."""

    delta: Ints  # the first `untouched` rows hold the values themselves
    reference: Ints  # the value of each feature when its delta was last kept
    kept: NDArray[np.bool_]
    untouched: int
    peak: int  # the largest magnitude of a difference, kept or not

    def columns(self, part: slice) -> EncodedInts:
        delta, reference, kept = self.delta, self.reference, self.kept
        return EncodedInts(
            delta[:, part], reference[:, part], kept[:, part], self.untouched, self.peak
        )


def encode(x: Ints, theta: int) -> EncodedInts:
    """Delta encode rows with an integer threshold; below zero every row stays untouched.

    A difference of more than 16 bits saturates; the peak of the deltas shows it.
    """
    untouched, peak = min(UNTOUCHED if theta >= 0 else len(x), len(x)), 0
    delta, reference, kept = x.copy(), x.copy(), np.ones(x.shape, np.bool_)
    for t in range(untouched, len(x)):
        change = saturate(x[t] - reference[t - 1])
        peak = max(peak, int(np.abs(change).max()))
        kept[t] = np.abs(change) > theta
        delta[t] = np.where(kept[t], change, 0)
        reference[t] = np.where(kept[t], x[t], reference[t - 1])
    return EncodedInts(delta, reference, kept, untouched, peak)


def delta_multiply(x: EncodedInts, w: Ints, bias: Ints) -> tuple[Ints, int]:
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
class DefinedRun:
    """The result of one clip, as this definition gives it."""

    logits: Ints  # (labels) 32 bits, with FixedWeights.head_bits fraction bits
    macs: NDArray[np.int64]  # (layers, 6), in the order of macs.PRODUCTS
    nonzeros: NDArray[np.int64]  # (layers, 9), in the order of ALL_SITES
    peaks: NDArray[np.int64]  # (layers + 1, 11), in the order of PEAKS; the last row has only x
    outputs: list[Ints]  # per layer (T, d), of the last only the class token's row


def embed(weights: FixedWeights, features: Ints) -> Ints:
    """(frames, features) 16 bits -> (T, d). The sums fit 32 bits: see `fixed_weights`."""
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


def run(weights: FixedWeights, features: Ints, thresholds: Ints | None = None) -> DefinedRun:
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
    return DefinedRun(logits, np.array(macs), np.array(nonzeros), peaks, outputs)


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
