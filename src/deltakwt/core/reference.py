"""The paper in plain NumPy, one function an idea: the oracle, never fast, never clever.

Jelcicova and Verhelst, "Delta Keyword Transformer", 2022. Equations are cited by their labels in
the paper's source. T tokens of width d; row 0 is the class token, row 1 the first token of sound.
Any float type: 64 bits to prove things, 32 bits to compare with the native core.

First the Keyword Transformer as it is, then the delta algorithm, then both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import LAYER_NORM_EPS, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import ALL_SITES, DENSE_SITE, Thresholds

Array = NDArray[Any]  # of whichever float type the features have
Weights = Mapping[str, Array]  # names and shapes: Config.shapes()

UNTOUCHED = 2  # rows that are never delta encoded: the class token and the first token


# ------------------------------------------------------------------ the Keyword Transformer


def embed(config: Config, weights: Weights, features: Array) -> Array:
    """(frames, features) -> (T, d): X = [X_CE; X_MFCC W_0] + X_PE."""
    if features.shape != (config.frames, config.features) or not np.isfinite(features).all():
        raise DeltakwtError(
            f"features of shape {features.shape}: the model takes finite numbers of shape"
            f" ({config.frames}, {config.features})"
        )
    tokens = features @ weights["embed.weight"] + weights["embed.bias"]
    return np.vstack([weights["class_token"], tokens]) + weights["positions"]


def softmax(rows: Array) -> Array:
    """Equation eq:softmax; taking the largest away changes nothing but keeps exp in range."""
    powers = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))))


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + LAYER_NORM_EPS) * weight + bias)


def classify(weights: Weights, x: Array) -> Array:
    """The class token of the last layer -> one logit a label."""
    return np.asarray(x[0] @ weights["head.weight"] + weights["head.bias"])


def block_weights(weights: Weights, layer: int) -> Weights:
    prefix = f"blocks.{layer}."
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def cast(weights: Weights, like: Array) -> Weights:
    return {name: w.astype(like.dtype) for name, w in weights.items()}


def dense(config: Config, weights: Weights, features: Array) -> Array:
    """(frames, features) -> (labels,) logits: the model without any delta or shortcut."""
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
    width = config.head_dim
    return [slice(h * width, (h + 1) * width) for h in range(config.heads)]


# ------------------------------------------------------------------ the delta algorithm


@dataclass(frozen=True)
class Encoded:
    """Rows written as differences from the row before. All (rows, width) but `untouched`."""

    delta: Array  # the first `untouched` rows hold the values themselves
    reference: Array  # X^: what the deltas add up to
    kept: NDArray[np.bool_]  # what is stored and multiplied; untouched rows in full
    untouched: int

    def columns(self, part: slice) -> Encoded:
        delta, reference, kept = self.delta, self.reference, self.kept
        return Encoded(delta[:, part], reference[:, part], kept[:, part], self.untouched)


def encode(x: Array, theta: float | None) -> Encoded:
    """Equations eq:xDelta and eq:xPrevious. With theta None every row stays untouched: dense."""
    if not np.isfinite(x).all():  # a NaN is never above a threshold: it would pass for "unchanged"
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
    """Delta times regular matrix, eq:Xupdatemac: R(t) = dX(t) W + R(t-1). Also its MACs."""
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
    """A B^T where both are delta encoded (rows of b are the paper's columns). Also its MACs."""
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
    """Softmax of rows given as deltas, eq:R2nom to eq:R2scalingfactor.

    From one row to the next only the sum of exponentials is kept:
        softmax(t) = softmax(t-1) NOM / DENOM,  NOM = exp(dr),  DENOM = sum(t) / sum(t-1).
    (The paper's SF_{r_1} names the softmax by the row it becomes; the factor is the previous
    row's.) All of it is done in logarithms: exp of a large score would overflow, and a
    probability that once underflowed to zero could never be scaled up again.
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
    peak = row.max()
    return peak + np.log(np.exp(row - peak).sum())


# ------------------------------------------------------------------ both together


@dataclass(frozen=True)
class DeltaRun:
    """What came out and what it took."""

    logits: Array  # (labels,)
    macs: NDArray[np.int64]  # (layers, 6), products in the order of macs.PRODUCTS
    sites: list[dict[str, Encoded]]  # a layer: its tensors by site; heads lie side by side
    outputs: list[Array]  # a layer: (T, d), of the last only the class token's row

    @property
    def nonzeros(self) -> NDArray[np.int64]:
        """(layers, 9): kept values a site, the untouched rows in full."""
        return np.array([[int(s[site].kept.sum()) for site in ALL_SITES] for s in self.sites])


def delta(config: Config, weights: Weights, features: Array, thresholds: Thresholds) -> DeltaRun:
    """(frames, features) -> logits by the delta algorithm, with every MAC counted."""
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
        # The residual is the exact x: what a delta leaves out is not left out here.
        x = layer_norm(mhsa + x[: len(mhsa)], w["norm1.weight"], w["norm1.bias"])
        mlp, mlp_macs, mlp_sites = delta_mlp(w, x, theta)
        x = layer_norm(mlp + x, w["norm2.weight"], w["norm2.bias"])
        macs.append(mhsa_macs + mlp_macs)
        sites.append(mhsa_sites | mlp_sites)
        outputs.append(x)
    return DeltaRun(classify(weights, x), np.array(macs, np.int64), sites, outputs)


Part = tuple[Array, list[int], dict[str, Encoded]]  # result, MACs by product, tensors by site


def delta_mhsa(
    config: Config, w: Weights, x: Array, theta: dict[str, float | None], last: bool
) -> Part:
    """(T, d) -> (T, d), or (1, d) in the last layer, where only the class token matters.

    The six sites of the paper, in its order, and v: stored as deltas, multiplied as it is.
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


def delta_mlp(w: Weights, x: Array, theta: dict[str, float | None]) -> Part:
    """(rows, d) -> (rows, d). Beyond the paper: the same encoding before both MLP layers."""
    site = {"mlp_in": encode(x, theta["mlp_in"])}
    wide, mlp_in = delta_product(site["mlp_in"], w["mlp_in.weight"])
    wide += w["mlp_in.bias"]
    hidden = np.empty_like(wide)
    for t in range(len(wide)):  # GELU only where the row changed
        changed = t == 0 or site["mlp_in"].kept[t].any()
        hidden[t] = gelu(wide[t]) if changed else hidden[t - 1]
    site["mlp_hidden"] = encode(hidden, theta["mlp_hidden"])
    narrow, mlp_out = delta_product(site["mlp_hidden"], w["mlp_out.weight"])
    return narrow + w["mlp_out.bias"], [mlp_in, mlp_out], site


def beside(parts: list[Encoded]) -> Encoded:
    """The heads' (rows, T) side by side: (rows, heads * T)."""
    delta, reference, kept = (
        np.hstack([getattr(part, name) for part in parts])
        for name in ("delta", "reference", "kept")
    )
    return Encoded(delta, reference, kept, parts[0].untouched)
