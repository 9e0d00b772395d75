"""Counts of multiply-accumulates (MACs): dense, fewest possible, paper's count, executed count.

MACs are counted over the six matrix products of a Transformer layer. The embedding, the classifier
and element-wise operations are not counted. Percentages are always of the full dense layers,
without the shortcut of the last layer.

There are two counts of a delta run, and they differ:

- The *paper's count* takes a product of two delta-encoded matrices delta by delta: a MAC of Q K^T
  is counted where both factors were kept. The engine reports this count.
- The *executed count* is what the core multiplies. It computes Q K^T as the kept values of Q times
  whole rows of the reconstructed K, and it always multiplies whole vectors of columns. The count
  follows from the kept values of each site (`executed_macs`).

The core also fills the list of a row's kept values with zeros to a multiple of four. How many
multiplications that adds depends on every row, so it needs a trace (`fill_macs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.native import choose_isa
from deltakwt.core.setting import ALL_SITES

# X W_{Q,K,V}, Q K^T, softmax V, heads W_P; then the two layers of the MLP
PRODUCTS = ("xw", "qkt", "sv", "proj", "mlp_in", "mlp_out")
MHSA_PRODUCTS = PRODUCTS[:4]
# The site whose kept values each product multiplies.
PRODUCT_SITES = ("x", "q", "softmax", "heads", "mlp_in", "mlp_hidden")

LANES = {"scalar": 1, "neon": 4, "avx2": 8, "avx512": 16}  # floats of a vector, by instruction set
LIST_GROUP = 4  # DK_GROUP: the kept values of a row are multiplied four at a time
EXACT_ROWS = 2  # the class token and the first token are never delta encoded

Counts = NDArray[np.int64]  # (layers, 6)
Table = NDArray[Any]  # (layers, 6) or (layers, 9), integers or means over clips


def layer_macs(config: Config, rows: int, last: bool) -> list[int]:
    """Return the six products of one layer when `rows` rows of every operand are computed in full.

    Equations eq:saveInp11 to eq:savechV12: rows = 2 is the case where all deltas are zero and only
    the class token and the first token are computed; rows = T is the dense layer. In the last
    layer only the class token's row is needed, but the keys and values of all rows.
    """
    T, d, m = config.tokens, config.dim, config.mlp
    queries = 1 if last else rows
    return [
        (queries + 2 * rows) * d * d,  # X W_Q, X W_K, X W_V
        queries * rows * d,  # Q K^T: heads * head_dim = d
        queries * T * d,  # softmax V: a softmax row weighs all T values
        queries * d * d,
        queries * d * m,
        queries * m * d,
    ]


def dense_macs(config: Config) -> Counts:
    """Return (layers, 6) without any shortcut. Every percentage is of this."""
    return np.array([layer_macs(config, config.tokens, last=False)] * config.layers, np.int64)


def shortcut_macs(config: Config) -> Counts:
    """Return (layers, 6) of a dense run whose last layer computes only the class token."""
    return _with_last(config, config.tokens)


def fewest_macs(config: Config) -> Counts:
    """Return (layers, 6) when every delta is zero: the greatest possible saving."""
    return _with_last(config, min(EXACT_ROWS, config.tokens))


def _with_last(config: Config, rows: int) -> Counts:
    body = [layer_macs(config, rows, last=False)] * (config.layers - 1)
    return np.array([*body, layer_macs(config, rows, last=True)], np.int64)


# ------------------------------------------------------------------ what the core multiplies


def executed_macs(config: Config, nonzeros: Table, isa: str = "scalar") -> Table:
    """Return (layers, 6) multiplications that the core executes for (layers, 9) kept values.

    Every kept value of a site, the exact rows included, is multiplied with one row of the other
    factor, in whole vectors of the instruction set. `native/src/attention.c` and `block.c` are the
    source of this formula. A dense site counts all of its rows, as in the paper's count.
    """
    columns = _columns(config, LANES[isa])
    kept = np.stack([nonzeros[:, ALL_SITES.index(site)] for site in PRODUCT_SITES], axis=1)
    executed: Table = kept * columns
    d = config.dim
    # The last layer multiplies x with W_K and W_V only, and one row with W_Q.
    executed[-1, 0] = kept[-1, 0] * _padded(2 * d, LANES[isa]) + d * _padded(d, LANES[isa])
    return executed


def fill_macs(
    config: Config, trace: Mapping[str, NDArray[Any]], thresholds: Table, isa: str = "scalar"
) -> Counts:
    """Return (layers, 6) multiplications with the zeros that fill up the lists of kept values.

    `trace` is that of `Engine.trace`, `thresholds` the array (layers, 9) it was made with. The list
    of each row is filled to a multiple of four; Q and softmax have one list for each head.
    """
    columns = _columns(config, LANES[isa])
    fill = np.zeros((config.layers, len(PRODUCTS)), np.int64)
    for product, site in enumerate(PRODUCT_SITES):
        mask = trace[f"{site}.mask"][:, EXACT_ROWS:]  # (layers, T - 2, width)
        lists = config.heads if site in ("q", "softmax") else 1
        kept = mask.reshape(*mask.shape[:2], lists, -1).sum(axis=3)  # (layers, T - 2, lists)
        zeros = (-kept % LIST_GROUP).sum(axis=(1, 2))
        is_delta = thresholds[:, ALL_SITES.index(site)] >= 0
        fill[:, product] = np.where(is_delta, zeros * columns[product], 0)
    last = thresholds[-1, 0] >= 0
    kept = trace["x.mask"][-1, EXACT_ROWS:].sum(axis=1)
    zeros = int((-kept % LIST_GROUP).sum()) if last else 0
    fill[-1, 0] = zeros * _padded(2 * config.dim, LANES[isa])
    fill[-1, 1:] = 0  # one exact row, no list
    return fill


def _columns(config: Config, lanes: int) -> NDArray[np.int64]:
    """Return the columns that one value is multiplied with in each product, in whole vectors."""
    d = config.dim
    widths = (3 * d, config.tokens, config.head_dim, d, config.mlp, d)
    return np.array([_padded(width, lanes) for width in widths], np.int64)


def _padded(columns: int, lanes: int) -> int:
    return -(-columns // lanes) * lanes


# ------------------------------------------------------------------ in percent


@dataclass(frozen=True)
class Macs:
    """The two counts of one clip, or their means over many clips, against the dense model.

    All properties without `executed` in their name are the paper's count. The executed count is
    known where `nonzeros` is given.
    """

    config: Config
    counts: Table  # (layers, 6): the paper's count
    nonzeros: Table | None = None  # (layers, 9): kept values of each site
    isa: str = ""  # instruction set of the executed count; "": the one in use

    @property
    def executed(self) -> Table | None:
        """The executed count (layers, 6), or None where the kept values are not known."""
        if self.nonzeros is None:
            return None
        return executed_macs(self.config, self.nonzeros, self.isa or choose_isa())

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def mhsa_percent(self) -> float:
        return _percent(self.config, self.counts, MHSA)

    @property
    def model_percent(self) -> float:
        return _percent(self.config, self.counts)

    @property
    def executed_mhsa_percent(self) -> float | None:
        table = self.executed
        return None if table is None else _percent(self.config, table, MHSA)

    @property
    def executed_model_percent(self) -> float | None:
        table = self.executed
        return None if table is None else _percent(self.config, table)

    @property
    def products(self) -> dict[str, float]:
        """Percent of each product, over all layers."""
        return _by_product(self.config, self.counts)

    @property
    def layers(self) -> list[dict[str, float]]:
        """Percent of each product, of MHSA and of everything, layer by layer."""
        return _by_layer(self.config, self.counts)

    def to_json(self) -> dict[str, Any]:
        """Return the paper's count and, under `executed`, the executed one (null if not known)."""
        executed = self.executed
        return {
            **_summary(self.config, self.counts),
            "executed": None if executed is None else _summary(self.config, executed),
        }


MHSA = slice(0, len(MHSA_PRODUCTS))
ALL = slice(None)


def _percent(config: Config, table: Table, products: slice = ALL, layers: slice = ALL) -> float:
    dense = dense_macs(config)[layers, products].sum()
    return float(100 * table[layers, products].sum() / dense)


def _by_product(config: Config, table: Table, layers: slice = ALL) -> dict[str, float]:
    return {
        name: _percent(config, table, slice(i, i + 1), layers) for i, name in enumerate(PRODUCTS)
    }


def _by_layer(config: Config, table: Table) -> list[dict[str, float]]:
    layers = [slice(i, i + 1) for i in range(config.layers)]
    return [
        {
            **_by_product(config, table, layer),
            "mhsa_percent": _percent(config, table, MHSA, layer),
            "model_percent": _percent(config, table, ALL, layer),
        }
        for layer in layers
    ]


def _summary(config: Config, table: Table) -> dict[str, Any]:
    return {
        "mhsa_percent": _percent(config, table, MHSA),
        "model_percent": _percent(config, table),
        "sites": _by_product(config, table),
        "layers": _by_layer(config, table),
    }


# ------------------------------------------------------------------ from the shape alone


def bounds(config: Config) -> dict[str, Any]:
    """Return each product's share of the MACs and the most that deltas can ever save."""
    dense, shortcut, fewest = dense_macs(config), shortcut_macs(config), fewest_macs(config)
    mhsa = dense[:, : len(MHSA_PRODUCTS)].sum()
    saving = 100 * (1 - fewest / dense)  # (layers, 6)
    executed = 100 * (1 - executed_macs(config, _fewest_nonzeros(config)) / dense)
    products = {
        name: {
            "macs": int(dense[:, i].sum()),
            "mhsa_share_percent": float(100 * dense[:, i].sum() / mhsa) if i < 4 else None,
            "model_share_percent": float(100 * dense[:, i].sum() / dense.sum()),
            "greatest_saving_percent": float(saving[0, i]),
            "greatest_saving_last_layer_percent": float(saving[-1, i]),
            "greatest_executed_saving_percent": float(executed[0, i]),
        }
        for i, name in enumerate(PRODUCTS)
    }
    return {
        "macs": int(dense.sum()),
        "mhsa_share_percent": float(100 * mhsa / dense.sum()),
        "mlp_share_percent": float(100 - 100 * mhsa / dense.sum()),
        "products": products,
        "last_layer": _savings(dense[-1], shortcut[-1]),
        "all_layers": _savings(dense, shortcut),
        "greatest": _savings(dense, fewest),
    }


def _fewest_nonzeros(config: Config) -> Counts:
    """Return (layers, 9) kept values when every delta is zero."""
    rows = min(EXACT_ROWS, config.tokens)
    widths = dict.fromkeys(ALL_SITES, config.dim)
    widths |= dict.fromkeys(("scores", "softmax"), config.heads * config.tokens)
    widths["mlp_hidden"] = config.mlp
    table = np.array([[rows * widths[site] for site in ALL_SITES]] * config.layers, np.int64)
    one_row = [i for i, site in enumerate(ALL_SITES) if site not in ("x", "k", "v")]
    table[-1, one_row] //= rows  # the last layer computes the class token only
    return table


def _savings(dense: Counts, fewer: Counts) -> dict[str, float]:
    mhsa = slice(0, len(MHSA_PRODUCTS))
    return {
        "mhsa_saving_percent": float(100 * (1 - fewer[..., mhsa].sum() / dense[..., mhsa].sum())),
        "model_saving_percent": float(100 * (1 - fewer.sum() / dense.sum())),
    }
