"""The algorithm of the paper in plain NumPy, one function per equation: the reference for tests.

Jelcicova and Verhelst, "Delta Keyword Transformer", 2022. Equations are cited by their labels in
the paper's source. T tokens of width d; row 0 is the class token, row 1 the first token of sound.
Every float type works: 64 bits for exact tests, 32 bits for comparison with the native core.
The code is written to be read, not to be fast.

First the Keyword Transformer without deltas, then the delta algorithm, then both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import LAYER_NORM_EPS, Config, block_weights
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import ALL_SITES, DENSE_SITE, Thresholds

Array = NDArray[Any]  # of the float type of the features
Tensors = Mapping[str, Array]  # names and shapes: Config.shapes()

UNTOUCHED = 2  # rows that are never delta encoded: the class token and the first token


# ------------------------------------------------------------------ the Keyword Transformer


def embed(config: Config, weights: Tensors, features: Array) -> Array:
    """Return the tokens (T, d) of features (frames, features): X = [X_CE; X_MFCC W_0] + X_PE."""
    if features.shape != (config.frames, config.features) or not np.isfinite(features).all():
        raise DeltakwtError(
            f"features of shape {features.shape}: the model takes finite numbers of shape"
            f" ({config.frames}, {config.features})"
        )
    tokens = features @ weights["embed.weight"] + weights["embed.bias"]
    return np.vstack([weights["class_token"], tokens]) + weights["positions"]


def softmax(rows: Array) -> Array:
    """Return the softmax of each row, eq:softmax. Subtracting the maximum avoids overflow."""
    powers = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def gelu(x: Array) -> Array:
    """Return GELU(x) in its tanh form."""
    return np.asarray(x / 2 * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """Return LayerNorm of each row."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + LAYER_NORM_EPS) * weight + bias)


def classify(weights: Tensors, x: Array) -> Array:
    """Return the logits (labels,) from the class token of the last layer."""
    return np.asarray(x[0] @ weights["head.weight"] + weights["head.bias"])


def cast(weights: Tensors, like: Array) -> Tensors:
    """Return the weights in the float type of `like`."""
    return {name: w.astype(like.dtype) for name, w in weights.items()}


def dense(config: Config, weights: Tensors, features: Array) -> Array:
    """Return the logits (labels,) of the model without deltas and without shortcuts."""
    weights = cast(weights, features)
    x = embed(config, weights, features)
    for layer in range(config.layers):
        w = block_weights(weights, layer)
        q, k, v = x @ w["q.weight"], x @ w["k.weight"], x @ w["v.weight"]
        heads = [
            softmax(q[:, h] @ k[:, h].T / sqrt(config.head_dim)) @ v[:, h]
            for h in head_columns(config)
        ]
        mhsa = np.hstack(heads) @ w["proj.weight"] + w["proj.bias"]
        x = layer_norm(mhsa + x, w["norm1.weight"], w["norm1.bias"])
        hidden = gelu(x @ w["mlp_in.weight"] + w["mlp_in.bias"])
        mlp = hidden @ w["mlp_out.weight"] + w["mlp_out.bias"]
        x = layer_norm(mlp + x, w["norm2.weight"], w["norm2.bias"])
    return classify(weights, x)


def head_columns(config: Config) -> list[slice]:
    """Return the columns of each head in Q, K and V."""
    width = config.head_dim
    return [slice(h * width, (h + 1) * width) for h in range(config.heads)]


# ------------------------------------------------------------------ the delta algorithm


@dataclass(frozen=True)
class Encoded:
    """Rows as differences from the reference of the row before. Arrays are (rows, width)."""

    delta: Array  # the first `untouched` rows hold the values themselves
    reference: Array  # X^: the sum of the deltas so far
    kept: NDArray[np.bool_]  # the values that are multiplied; all of an untouched row
    untouched: int

    def columns(self, part: slice) -> Encoded:
        """Return some of the columns."""
        delta, reference, kept = self.delta, self.reference, self.kept
        return Encoded(delta[:, part], reference[:, part], kept[:, part], self.untouched)


def encode(x: Array, theta: float | None) -> Encoded:
    """Return the rows delta encoded, eq:xDelta and eq:xPrevious. None encodes no row: dense."""
    if not np.isfinite(x).all():  # NaN exceeds no threshold, so it would count as unchanged
        raise DeltakwtError("delta encoding: the values are not finite (NaN or infinity)")
    untouched = min(UNTOUCHED if theta is not None else len(x), len(x))
    delta, reference, kept = x.copy(), x.copy(), np.ones(x.shape, np.bool_)
    for t in range(untouched, len(x)):
        change = x[t] - reference[t - 1]
        kept[t] = np.abs(change) > theta
        delta[t] = np.where(kept[t], change, 0)
        reference[t] = np.where(kept[t], x[t], reference[t - 1])
    return Encoded(delta, reference, kept, untouched)


def delta_product(x: Encoded, w: Array) -> tuple[Array, int]:
    """Return X W for delta encoded X, eq:Xupdatemac: R(t) = dX(t) W + R(t-1), and its MACs."""
    rows, fan_out = len(x.delta), w.shape[1]
    result = np.empty((rows, fan_out), w.dtype)
    macs = 0
    for t in range(rows):
        (kept,) = np.nonzero(x.kept[t])
        result[t] = x.delta[t, kept] @ w[kept]
        if t >= x.untouched:
            result[t] += result[t - 1]
        macs += len(kept) * fan_out
    return result, macs


def delta_delta_product(a: Encoded, b: Encoded) -> tuple[Array, int]:
    """Return A B^T, both delta encoded (rows of b are the paper's columns), and its MACs."""
    r = np.empty((len(a.delta), len(b.delta)), a.delta.dtype)
    macs = 0
    for i in range(len(a.delta)):
        for j in range(len(b.delta)):
            both = a.kept[i] & b.kept[j]
            r[i, j] = a.delta[i, both] @ b.delta[j, both]  # eq:r00 where neither is a delta
            macs += int(both.sum())
            if i < a.untouched and j >= b.untouched:
                r[i, j] += r[i, j - 1]  # eq:r01
            elif i >= a.untouched and j < b.untouched:
                r[i, j] += r[i - 1, j]  # eq:r10
            elif i >= a.untouched and j >= b.untouched:
                r[i, j] += r[i, j - 1] + r[i - 1, j] - r[i - 1, j - 1]  # eq:r11
    return r, macs


def delta_softmax(r: Encoded) -> Array:
    """Return the softmax of delta encoded rows, eq:R2nom to eq:R2scalingfactor.

    Only the sum of exponentials is carried from one row to the next:
        softmax(t) = softmax(t-1) NOM / DENOM,  NOM = exp(dr),  DENOM = sum(t) / sum(t-1).
    (The paper's SF_{r_1} is named after the new row; the softmax that is scaled is that of the
    previous row.) The computation uses logarithms: exp of a large score would overflow, and a
    probability that underflowed to zero could not grow again.
    """
    log_p = np.empty_like(r.delta)
    log_sum = r.delta.dtype.type(0)
    for t in range(len(log_p)):
        last_log_sum, log_sum = log_sum, log_sum_exp(r.reference[t])
        if t < r.untouched:
            log_p[t] = r.reference[t] - log_sum  # eq:deltasoftmaxR1
        else:
            log_nom, log_denom = r.delta[t], log_sum - last_log_sum
            log_p[t] = log_p[t - 1] + log_nom - log_denom
    return np.asarray(np.exp(log_p))


def log_sum_exp(row: Array) -> Any:
    """Return log(sum(exp(row))) without overflow."""
    peak = row.max()
    return peak + np.log(np.exp(row - peak).sum())


# ------------------------------------------------------------------ both together


@dataclass(frozen=True)
class DeltaRun:
    """The result of one clip with deltas, and its MACs."""

    logits: Array  # (labels,)
    macs: NDArray[np.int64]  # (layers, 6), products in the order of macs.PRODUCTS
    sites: list[dict[str, Encoded]]  # per layer: the tensors by site; heads side by side
    outputs: list[Array]  # per layer: (T, d); in the last layer only the class token (1, d)

    @property
    def nonzeros(self) -> NDArray[np.int64]:
        """The number of kept values per layer and site (layers, 9), with all untouched values."""
        return np.array([[int(s[site].kept.sum()) for site in ALL_SITES] for s in self.sites])


def delta(config: Config, weights: Tensors, features: Array, thresholds: Thresholds) -> DeltaRun:
    """Run the delta algorithm on features (frames, features) and count its MACs."""
    weights = cast(weights, features)
    x = embed(config, weights, features)
    table = thresholds.array(config.layers)
    macs, sites, outputs = [], [], []
    for layer in range(config.layers):
        theta = dict(
            zip(ALL_SITES, (None if v == DENSE_SITE else v for v in table[layer]), strict=True)
        )
        w, last = block_weights(weights, layer), layer == config.layers - 1
        mhsa, mhsa_macs, mhsa_sites = delta_mhsa(config, w, x, theta, last)
        # The residual adds the exact x, not its reference.
        x = layer_norm(mhsa + x[: len(mhsa)], w["norm1.weight"], w["norm1.bias"])
        mlp, mlp_macs, mlp_sites = delta_mlp(w, x, theta)
        x = layer_norm(mlp + x, w["norm2.weight"], w["norm2.bias"])
        macs.append(mhsa_macs + mlp_macs)
        sites.append(mhsa_sites | mlp_sites)
        outputs.append(x)
    return DeltaRun(classify(weights, x), np.array(macs, np.int64), sites, outputs)


Part = tuple[Array, list[int], dict[str, Encoded]]  # result, MACs by product, tensors by site


def delta_mhsa(
    config: Config, w: Tensors, x: Array, theta: dict[str, float | None], last: bool
) -> Part:
    """Return MHSA of x (T, d): (T, d), or (1, d) for the class token in the last layer.

    The sites are the six of the paper, in its order, and v, which is encoded for storage only:
    its references are multiplied.
    """
    d = config.dim
    site = {"x": encode(x, theta["x"])}
    kv, xw = delta_product(site["x"], np.hstack([w["k.weight"], w["v.weight"]]))
    queries = encode(x[:1], None) if last else site["x"]
    q, xw_q = delta_product(queries, w["q.weight"])
    site["q"], site["k"] = encode(q, theta["q"]), encode(kv[:, :d], theta["k"])
    site["v"] = encode(kv[:, d:], theta["v"])

    heads, qkt, sv = [], 0, 0
    scores_sites, softmax_sites = [], []
    for h in head_columns(config):
        scores, n = delta_delta_product(site["q"].columns(h), site["k"].columns(h))
        qkt += n
        scores_sites.append(encode(scores / sqrt(config.head_dim), theta["scores"]))
        softmax_sites.append(encode(delta_softmax(scores_sites[-1]), theta["softmax"]))
        head, n = delta_product(softmax_sites[-1], site["v"].reference[:, h])
        sv += n
        heads.append(head)
    site["scores"], site["softmax"] = beside(scores_sites), beside(softmax_sites)

    site["heads"] = encode(np.hstack(heads), theta["heads"])
    projected, proj = delta_product(site["heads"], w["proj.weight"])
    return projected + w["proj.bias"], [xw + xw_q, qkt, sv, proj], site


def delta_mlp(w: Tensors, x: Array, theta: dict[str, float | None]) -> Part:
    """Return MLP(x) (rows, d), with deltas before both layers. The paper leaves the MLP dense."""
    site = {"mlp_in": encode(x, theta["mlp_in"])}
    wide, mlp_in = delta_product(site["mlp_in"], w["mlp_in.weight"])
    wide += w["mlp_in.bias"]
    hidden = np.empty_like(wide)
    for t in range(len(wide)):  # GELU is computed only for rows that changed
        changed = t == 0 or site["mlp_in"].kept[t].any()
        hidden[t] = gelu(wide[t]) if changed else hidden[t - 1]
    site["mlp_hidden"] = encode(hidden, theta["mlp_hidden"])
    narrow, mlp_out = delta_product(site["mlp_hidden"], w["mlp_out.weight"])
    return narrow + w["mlp_out.bias"], [mlp_in, mlp_out], site


def beside(parts: list[Encoded]) -> Encoded:
    """Return the rows of all heads (rows, T) side by side (rows, heads * T)."""
    delta, reference, kept = (
        np.hstack([getattr(part, name) for part in parts])
        for name in ("delta", "reference", "kept")
    )
    return Encoded(delta, reference, kept, parts[0].untouched)
