"""Bytes of delta-encoded tensors: the data compression the paper claims and never measures.

Two forms, both for 32-bit values, row by row (a row of scores or softmax is one head's):
- bitmap: one bit a value says whether it changed, then the changed deltas;
- index: how many changed, then the position and the delta of each.
The untouched first rows are stored as they are, and so is a tensor of which nothing was skipped.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.reference import UNTOUCHED
from deltakwt.core.setting import ALL_SITES

FORMS = ("dense", "bitmap", "index")
VALUE_BYTES = 4


def shapes(config: Config, last: bool) -> dict[str, tuple[int, int]]:
    """Rows and width of each site's tensor in a layer; the heads lie side by side."""
    T, d = config.tokens, config.dim
    queries = 1 if last else T
    return {
        "x": (T, d),
        "q": (queries, d),
        "k": (T, d),
        "scores": (queries, config.heads * T),
        "softmax": (queries, config.heads * T),
        "heads": (queries, d),
        "mlp_in": (queries, d),
        "mlp_hidden": (queries, config.mlp),
        "v": (T, d),
    }


def row_overhead(width: int, form: str) -> tuple[int, int]:
    """Bytes a row costs before any value, and bytes of position that each value brings."""
    if form == "bitmap":
        return (width + 7) // 8, 0
    index = 1 if width < 256 else 2  # wide enough for the count of a full row, too
    return index, index


def packed_bytes(rows: int, width: int, nonzeros: float, form: str, segments: int = 1) -> float:
    """Bytes of a tensor of which `nonzeros` values were kept, untouched rows included.

    `segments` is the number of heads that lie side by side in a row, each with its own list.
    """
    plain = min(UNTOUCHED, rows) * width
    rest = nonzeros - plain
    if form == "dense" or rest >= rows * width - plain:
        return rows * width * VALUE_BYTES
    row, position = row_overhead(width // segments, form)
    lists = (rows - min(UNTOUCHED, rows)) * segments
    return plain * VALUE_BYTES + lists * row + rest * (position + VALUE_BYTES)


def site_bytes(config: Config, nonzeros: NDArray[Any]) -> list[dict[str, dict[str, float]]]:
    """(layers, 9) kept values -> a layer: {site: {form: bytes}}."""
    layers = []
    for layer, counts in enumerate(nonzeros):
        tensors = shapes(config, last=layer == config.layers - 1)
        layers.append(
            {
                site: {
                    form: float(packed_bytes(*tensors[site], count, form, _segments(config, site)))
                    for form in FORMS
                }
                for site, count in zip(ALL_SITES, counts, strict=True)
            }
        )
    return layers


def _segments(config: Config, site: str) -> int:
    return config.heads if site in ("scores", "softmax") else 1


# What lies in memory at the same time, step by step, when a layer works on whole tensors.
# x and mlp_in are needed exactly for the residual, so their deltas are used but never stored.
STEPS = (
    ("x", "q", "k", "v"),
    ("x", "q", "k", "v", "scores"),
    ("x", "v", "scores", "softmax"),
    ("x", "v", "softmax", "heads"),
    ("x", "heads", "mlp_in"),
    ("mlp_in", "mlp_hidden"),
)
EXACT = ("x", "mlp_in")


def peak_bytes(config: Config, layers: list[dict[str, dict[str, float]]], form: str) -> float:
    """The most bytes of activations that live at once, in any step of any layer.

    Each encoded tensor also holds one dense row, the reference its deltas add up to.
    """
    peak = 0.0
    for layer, sites in enumerate(layers):
        widths = {s: width for s, (_, width) in shapes(config, layer == config.layers - 1).items()}
        for step in STEPS:
            total = sum(sites[site]["dense" if site in EXACT else form] for site in step)
            if form != "dense":
                total += sum(widths[site] * VALUE_BYTES for site in step)
            peak = max(peak, total)
    return peak


def report(config: Config, nonzeros: NDArray[Any]) -> dict[str, Any]:
    """(layers, 9) kept values of a clip, or their mean -> the `bytes` of a JSON report."""
    layers = site_bytes(config, nonzeros)
    sites = {
        site: {form: sum(layer[site][form] for layer in layers) for form in FORMS}
        for site in ALL_SITES
    }
    return {
        "total": {form: sum(site[form] for site in sites.values()) for form in FORMS},
        "peak": {form: peak_bytes(config, layers, form) for form in FORMS},
        "sites": sites,
        "layers": layers,
    }
