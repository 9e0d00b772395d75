"""Multiply-accumulates: dense, with the class-token shortcut, the fewest possible, and executed.

Counted as the paper counts them (its section on computational savings), over the six products of
a Transformer layer. Embedding and classifier are not counted, nor are element-wise operations.
Percentages are always of the full dense layer, without the shortcut of the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config

# X W_{Q,K,V}, Q K^T, softmax V, heads W_P; then the two layers of the MLP
PRODUCTS = ("xw", "qkt", "sv", "proj", "mlp_in", "mlp_out")
MHSA_PRODUCTS = PRODUCTS[:4]

Counts = NDArray[np.int64]  # (layers, 6)


def layer_macs(config: Config, rows: int, last: bool) -> list[int]:
    """The six products of one layer when `rows` rows of every operand are computed in full.

    Equations eq:saveInp11 to eq:savechV12: rows = 2 is the case where all deltas are zero and only
    the class token and the first token are computed, rows = T is the dense layer. In the last
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
    """(layers, 6) without any shortcut: what every percentage is of."""
    return np.array([layer_macs(config, config.tokens, last=False)] * config.layers, np.int64)


def shortcut_macs(config: Config) -> Counts:
    """(layers, 6) dense, but the last layer computes only what the class token needs."""
    return _with_last(config, config.tokens)


def fewest_macs(config: Config) -> Counts:
    """(layers, 6) when every delta is zero: the greatest possible saving."""
    return _with_last(config, min(2, config.tokens))


def _with_last(config: Config, rows: int) -> Counts:
    body = [layer_macs(config, rows, last=False)] * (config.layers - 1)
    return np.array([*body, layer_macs(config, rows, last=True)], np.int64)


@dataclass(frozen=True)
class Macs:
    """Executed MACs of one clip, or their mean over many, against the dense model."""

    config: Config
    counts: NDArray[np.float64] | Counts  # (layers, 6)

    def _percent(self, products: slice, layers: slice = slice(None)) -> float:
        dense = dense_macs(self.config)[layers, products].sum()
        return float(100 * self.counts[layers, products].sum() / dense)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def mhsa_percent(self) -> float:
        return self._percent(slice(0, len(MHSA_PRODUCTS)))

    @property
    def model_percent(self) -> float:
        return self._percent(slice(None))

    @property
    def products(self) -> dict[str, float]:
        """Percent of each product, over all layers."""
        return {name: self._percent(slice(i, i + 1)) for i, name in enumerate(PRODUCTS)}

    @property
    def layers(self) -> list[dict[str, float]]:
        """Percent of each product, of MHSA and of everything, layer by layer."""
        return [self._layer(slice(i, i + 1)) for i in range(self.config.layers)]

    def _layer(self, layer: slice) -> dict[str, float]:
        percents = {p: self._percent(slice(i, i + 1), layer) for i, p in enumerate(PRODUCTS)}
        percents["mhsa_percent"] = self._percent(slice(0, len(MHSA_PRODUCTS)), layer)
        percents["model_percent"] = self._percent(slice(None), layer)
        return percents

    def to_json(self) -> dict[str, Any]:
        return {
            "mhsa_percent": self.mhsa_percent,
            "model_percent": self.model_percent,
            "sites": self.products,
            "layers": self.layers,
        }


def bounds(config: Config) -> dict[str, Any]:
    """What the shape alone says: each product's share and the most that deltas can ever save."""
    dense, shortcut, fewest = dense_macs(config), shortcut_macs(config), fewest_macs(config)
    mhsa = dense[:, : len(MHSA_PRODUCTS)].sum()
    saving = 100 * (1 - fewest / dense)  # (layers, 6)
    products = {
        name: {
            "macs": int(dense[:, i].sum()),
            "mhsa_share_percent": float(100 * dense[:, i].sum() / mhsa) if i < 4 else None,
            "model_share_percent": float(100 * dense[:, i].sum() / dense.sum()),
            "greatest_saving_percent": float(saving[0, i]),
            "greatest_saving_last_layer_percent": float(saving[-1, i]),
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


def _savings(dense: Counts, fewer: Counts) -> dict[str, float]:
    mhsa = slice(0, len(MHSA_PRODUCTS))
    return {
        "mhsa_saving_percent": float(100 * (1 - fewer[..., mhsa].sum() / dense[..., mhsa].sum())),
        "model_saving_percent": float(100 * (1 - fewer.sum() / dense.sum())),
    }
