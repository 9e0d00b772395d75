"""The delta algorithm in another form: dense products on reconstructed rows, many clips at once.

R(t) = R(t-1) + dX(t) W adds up, in exact arithmetic, to X^(t) W, where X^ is the reference the
deltas add up to. So the whole algorithm equals the dense model with every site's rows replaced by
their references, and the MACs follow from what was kept. A test proves it equal to `reference.py`
in 64-bit arithmetic; here it is fast enough in Python for thousands of clips.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.reference import (
    UNTOUCHED,
    Array,
    Tensors,
    block_weights,
    cast,
    gelu,
    layer_norm,
    softmax,
)
from deltakwt.core.setting import ALL_SITES, DENSE, Thresholds

Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """n clips."""

    logits: Array  # (n, labels)
    macs: NDArray[np.int64]  # (n, layers, 6)
    nonzeros: NDArray[np.int64]  # (n, layers, 9)


def delta(config: Config, weights: Tensors, features: Array, thresholds: Thresholds) -> Batch:
    """Return logits and counts of n clips, equal to `reference.delta` of each."""
    weights = cast(weights, features)
    table = thresholds.array(config.layers)
    tokens = features @ weights["embed.weight"] + weights["embed.bias"]
    class_token = np.broadcast_to(weights["class_token"], (len(tokens), 1, config.dim))
    x = np.concatenate([class_token, tokens], axis=1) + weights["positions"]
    macs, nonzeros = [], []
    for layer in range(config.layers):
        theta = dict(zip(ALL_SITES, (float(v) for v in table[layer]), strict=True))
        w, last = block_weights(weights, layer), layer == config.layers - 1
        x, kept = _block(config, w, x, theta, last)
        macs.append(_count(config, kept, last))
        nonzeros.append(np.stack([_total(kept[site]) for site in ALL_SITES], axis=1))
    logits = x[:, 0] @ weights["head.weight"] + weights["head.bias"]
    return Batch(logits, np.stack(macs, axis=1), np.stack(nonzeros, axis=1))


def reconstruct(x: Array, theta: float) -> tuple[Array, Kept]:
    """Return the references X^ of (..., rows, width), and which values were kept."""
    reference, kept = x.copy(), np.ones(x.shape, np.bool_)
    if theta != DENSE:
        for t in range(UNTOUCHED, x.shape[-2]):
            now, before = x[..., t, :], reference[..., t - 1, :]
            kept[..., t, :] = np.abs(now - before) > theta
            reference[..., t, :] = np.where(kept[..., t, :], now, before)
    return reference, kept


def _block(
    config: Config, w: Tensors, x: Array, theta: dict[str, float], last: bool
) -> tuple[Array, dict[str, Kept]]:
    """Return (n, T, d), or (n, 1, d) in the last layer, and which values each site kept."""
    kept: dict[str, Kept] = {}

    def site(name: str, rows: Array) -> Array:
        rows, kept[name] = reconstruct(rows, theta[name])
        return rows

    def split(rows: Array) -> Array:  # (n, T, d) -> (n, heads, T, head_dim)
        n, length, _ = rows.shape
        return rows.reshape(n, length, config.heads, config.head_dim).swapaxes(1, 2)

    seen = site("x", x)
    if last:
        x = x[:, :1]
    q = split(site("q", seen[:, : x.shape[1]] @ w["q.weight"]))
    k = split(site("k", seen @ w["k.weight"]))
    v = split(site("v", seen @ w["v.weight"]))
    scores = site("scores", q @ k.swapaxes(2, 3) / sqrt(config.head_dim))  # (n, heads, T, T)
    heads = (site("softmax", softmax(scores)) @ v).swapaxes(1, 2).reshape(x.shape)
    mhsa = site("heads", heads) @ w["proj.weight"] + w["proj.bias"]
    x = layer_norm(mhsa + x, w["norm1.weight"], w["norm1.bias"])
    hidden = gelu(site("mlp_in", x) @ w["mlp_in.weight"] + w["mlp_in.bias"])
    mlp = site("mlp_hidden", hidden) @ w["mlp_out.weight"] + w["mlp_out.bias"]
    return layer_norm(mlp + x, w["norm2.weight"], w["norm2.bias"]), kept


def _count(config: Config, kept: dict[str, Kept], last: bool) -> NDArray[np.int64]:
    """Return (n, 6): MACs of each product, from the kept values of its operands."""
    d, m = config.dim, config.mlp
    xw = _total(kept["x"]) * 2 * d + (d * d if last else _total(kept["x"]) * d)
    # A feature kept by nQ queries and nK keys meets itself nQ * nK times.
    qkt = (kept["q"].sum(axis=1) * kept["k"].sum(axis=1)).sum(axis=1)
    counts: list[Any] = [
        xw,
        qkt,
        _total(kept["softmax"]) * config.head_dim,
        _total(kept["heads"]) * d,
        _total(kept["mlp_in"]) * m,
        _total(kept["mlp_hidden"]) * d,
    ]
    return np.stack(counts, axis=1)


def _total(kept: Kept) -> NDArray[np.int64]:
    return np.asarray(kept.reshape(len(kept), -1).sum(axis=1))
