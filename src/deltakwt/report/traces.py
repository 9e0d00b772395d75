"""Quantities computed from a trace: the tensors of a run, layer by layer and site by site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.macs import EXACT_ROWS, layer_macs
from deltakwt.core.setting import ALL_SITES, Thresholds

EXACT = Thresholds(**dict.fromkeys(ALL_SITES, 0.0))  # every difference is kept: the dense values
Trace = dict[str, NDArray[Any]]  # Engine.trace
QUERY_SITES = ("q", "scores", "softmax", "heads", "mlp_in", "mlp_hidden")


def computed_rows(config: Config, site: str, layer: int) -> int:
    """Return the rows that exist: the last layer computes only what the class token needs."""
    return 1 if site in QUERY_SITES and layer == config.layers - 1 else config.tokens


def small_differences(config: Config, trace: Trace, fraction: float) -> NDArray[np.float64]:
    """Return (layers, 9): percent of differences between tokens below `fraction` of the range.

    The class token is not a moment in time, so the tokens of sound are compared. NaN where the last
    layer has no rows to compare.
    """
    result = np.full((config.layers, len(ALL_SITES)), np.nan)
    for column, site in enumerate(ALL_SITES):
        for layer in range(config.layers):
            rows = trace[site][layer, 1 : computed_rows(config, site, layer)]
            if len(rows) > 1:
                change = np.abs(np.diff(rows, axis=0))
                result[layer, column] = 100 * (change < fraction * np.ptp(rows)).mean()
    return result


# Ways to read "differences smaller than 1% of the dynamic range": name -> which tensor, and
# percent of its differences (T - 2, width) that are small, given its rows (T - 1, width).
READINGS: dict[str, tuple[str, Callable[[NDArray[Any], float], Any]]] = {
    "size of the difference, range of X over the clip": (
        "x", lambda x, part: np.abs(np.diff(x, axis=0)) < part * np.ptp(x)),
    "size of the difference, range of each feature": (
        "x", lambda x, part: np.abs(np.diff(x, axis=0)) < part * np.ptp(x, axis=0)),
    "size of the difference, range of the differences": (
        "x", lambda x, part: np.abs(np.diff(x, axis=0)) < part * np.ptp(np.diff(x, axis=0))),
    "signed difference, so that every decrease is small": (
        "x", lambda x, part: np.diff(x, axis=0) < part * np.ptp(x)),
    "square of the difference, range of X": (
        "x", lambda x, part: np.diff(x, axis=0) ** 2 < part * np.ptp(x)),
    "square of the difference, range of the squares": (
        "x", lambda x, part: np.diff(x, axis=0) ** 2 < part * np.ptp(np.diff(x, axis=0) ** 2)),
    "size of the difference, softmax output instead of X": (
        "softmax", lambda x, part: np.abs(np.diff(x, axis=0)) < part * np.ptp(x)),
}  # fmt: skip


def small_by_reading(trace: Trace, layer: int, fraction: float) -> dict[str, float]:
    """Return percent of small differences in a layer for every reading of the paper's sentence."""
    return {
        name: float(100 * np.mean(is_small(trace[site][layer, 1:], fraction)))
        for name, (site, is_small) in READINGS.items()
    }


def token_macs(config: Config, trace: Trace) -> NDArray[np.float64]:
    """Return (layers, T): each token's MACs in percent of a dense token, the paper's count."""
    d, m, last = config.dim, config.mlp, config.layers - 1
    kept = {site: trace[f"{site}.mask"].astype(np.int64) for site in ALL_SITES}
    rows = {site: mask.sum(axis=2) for site, mask in kept.items()}  # (layers, T)
    keys = kept["k"].sum(axis=1)  # (layers, d): how many tokens moved each feature of K
    queries = rows["x"].copy()
    queries[last] = 0
    queries[last, 0] = d
    counts = (
        (2 * rows["x"] + queries) * d
        + np.einsum("ltd,ld->lt", kept["q"], keys)
        + rows["softmax"] * config.head_dim
        + rows["heads"] * d
        + rows["mlp_in"] * m
        + rows["mlp_hidden"] * d
    )
    dense = sum(layer_macs(config, config.tokens, last=False)) / config.tokens
    return np.asarray(100 * counts / dense)


def output_errors(config: Config, dense: Trace, delta: Trace) -> NDArray[np.float64]:
    """Return (layers,): distance of each layer's output from the dense one, percent of its norm."""
    errors = []
    for layer in range(config.layers):
        rows = computed_rows(config, "mlp_in", layer)
        exact, found = dense["output"][layer, :rows], delta["output"][layer, :rows]
        errors.append(100 * np.linalg.norm(found - exact) / np.linalg.norm(exact))
    return np.array(errors)


def exponentials(config: Config, trace: Trace) -> dict[str, NDArray[np.int64]]:
    """Return how many exponentials the softmax of each layer takes, (layers,) each.

    dense: one per score. core: one per score in a row of a head in which any score changed. scaling
    factors: one per changed score, as the paper's softmax with scaling factors would need.
    """
    T = config.tokens
    kept = trace["scores.mask"].reshape(config.layers, T, config.heads, T)
    return {
        "dense": np.full(config.layers, T * T * config.heads),
        "core": T * kept.any(axis=3).sum(axis=(1, 2)),
        "scaling_factors": kept.sum(axis=(1, 2, 3)),
    }


def deltas(references: NDArray[Any]) -> NDArray[Any]:
    """Return what was multiplied for (T, width) references: two whole rows, then the changes."""
    return np.vstack([references[:EXACT_ROWS], np.diff(references[EXACT_ROWS - 1 :], axis=0)])


def rounded(values: NDArray[Any], digits: int = 4) -> list[Any]:
    """Return nested lists with so many significant digits, so that the JSON stays small."""
    flat = [float(f"{v:.{digits}g}") for v in np.asarray(values, np.float64).ravel()]
    shaped: list[Any] = np.array(flat).reshape(values.shape).tolist()
    return shaped
