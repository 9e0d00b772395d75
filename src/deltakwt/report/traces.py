"""The tensors inside a run, layer by layer and site by site, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.macs import layer_macs
from deltakwt.core.reference import UNTOUCHED
from deltakwt.core.setting import ALL_SITES, Thresholds

EXACT = Thresholds(**dict.fromkeys(ALL_SITES, 0.0))  # every difference is kept: the dense values
Trace = dict[str, NDArray[Any]]  # Engine.trace
QUERY_SITES = ("q", "scores", "softmax", "heads", "mlp_in", "mlp_hidden")


def computed_rows(config: Config, site: str, layer: int) -> int:
    """Rows that exist: the last layer computes only what the class token needs."""
    return 1 if site in QUERY_SITES and layer == config.layers - 1 else config.tokens


def small_differences(config: Config, trace: Trace, fraction: float) -> NDArray[np.float64]:
    """(layers, 9): percent of differences between subsequent tokens below `fraction` of the range.

    The class token is not a moment in time, so the 98 tokens of sound are compared. NaN where the
    last layer has no rows to compare.
    """
    result = np.full((config.layers, len(ALL_SITES)), np.nan)
    for column, site in enumerate(ALL_SITES):
        for layer in range(config.layers):
            rows = trace[site][layer, 1 : computed_rows(config, site, layer)]
            if len(rows) > 1:
                change = np.abs(np.diff(rows, axis=0))
                result[layer, column] = 100 * (change < fraction * np.ptp(rows)).mean()
    return result


def token_macs(config: Config, trace: Trace) -> NDArray[np.float64]:
    """(layers, T): percent of a dense token's MACs that each token took."""
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
    """(layers,): how far each layer's output lies from the dense one, in percent of its length."""
    errors = []
    for layer in range(config.layers):
        rows = computed_rows(config, "mlp_in", layer)
        exact, found = dense["output"][layer, :rows], delta["output"][layer, :rows]
        errors.append(100 * np.linalg.norm(found - exact) / np.linalg.norm(exact))
    return np.array(errors)


def deltas(references: NDArray[Any]) -> NDArray[Any]:
    """(T, width) references -> what was multiplied: the first two rows whole, then the changes."""
    return np.vstack([references[:UNTOUCHED], np.diff(references[UNTOUCHED - 1 :], axis=0)])


def rounded(values: NDArray[Any], digits: int = 4) -> list[Any]:
    """Nested lists with so many significant digits: pictures need no more, and JSON stays small."""
    flat = [float(f"{v:.{digits}g}") for v in np.asarray(values, np.float64).ravel()]
    shaped: list[Any] = np.array(flat).reshape(values.shape).tolist()
    return shaped
