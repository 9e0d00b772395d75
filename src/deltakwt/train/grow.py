"""Widening: a wide model that computes exactly what a trained narrow model computes.

KWT-3 is three KWT-1 side by side: 3 x 64 = 192, 3 heads of 64, 3 x 256 = 768. If every token is
the narrow token repeated, its LayerNorm is the narrow LayerNorm repeated, and a matrix whose
input copies share the narrow weight between them gives the narrow result. The shares are drawn at
random and add up to one, so the copies compute the same but get different gradients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError

Array = NDArray[np.float32]
UNEVEN = 0.5  # spread of the shares, relative to their mean


def grow(
    narrow: Config, tensors: Mapping[str, Array], wide: Config, seed: int = 0
) -> dict[str, Array]:
    """Return weights of `wide` that compute the logits of `narrow`."""
    times = wide.dim // narrow.dim
    if (wide.dim, wide.heads, wide.mlp) != tuple(
        times * n for n in (narrow.dim, narrow.heads, narrow.mlp)
    ) or (wide.layers, wide.labels) != (narrow.layers, narrow.labels):
        raise DeltakwtError(
            f"a model of width {narrow.dim} and {narrow.layers} layers cannot grow into width"
            f" {wide.dim} and {wide.layers}: width, heads and MLP must be the same multiple"
        )
    rng = np.random.default_rng(seed)
    return {name: _widen(tensors[name], shape, times, rng) for name, shape in wide.shapes().items()}


def _widen(tensor: Array, shape: tuple[int, ...], times: int, rng: np.random.Generator) -> Array:
    outputs = shape[-1] // tensor.shape[-1]  # 1 for the head, whose labels stay
    wide = np.tile(tensor, (*[1] * (tensor.ndim - 1), outputs))
    if tensor.ndim == 1 or shape[0] == tensor.shape[0]:
        return wide  # a vector, or a matrix whose input is not repeated
    uneven = UNEVEN * rng.standard_normal((times, *wide.shape)).astype(np.float32)
    shares = (1 + uneven - uneven.mean(axis=0)) / times  # add up to one
    return np.concatenate(list(shares * wide))
