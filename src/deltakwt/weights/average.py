"""The weighted mean of several models of one shape.

Training a model further for new conditions costs accuracy on the old ones. The mean of the weights
before and after often keeps most of both (Wortsman et al., *Robust fine-tuning of zero-shot
models*, 2022). It only makes sense for models that were trained from the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import Weights, load_weights


def parse_shares(parts: Sequence[str]) -> list[tuple[str, float]]:
    """Return the models and shares of texts such as `kwt-1=0.3`. The shares must add up to 1."""
    pairs: list[tuple[str, float]] = []
    for part in parts:
        name, _, text = part.rpartition("=")
        try:
            share = float(text)
        except ValueError:
            share = float("nan")
        if not name or not isfinite(share):
            raise DeltakwtError(f"{part!r}: give a model and its share, such as kwt-1=0.3")
        pairs.append((name, share))
    total = sum(share for _, share in pairs)
    if len(pairs) < 2 or abs(total - 1) > 1e-6:
        raise DeltakwtError(f"give at least two models whose shares add up to 1, not {total:g}")
    return pairs


def average(models: Sequence[tuple[Path, float]]) -> Weights:
    """Return the weighted mean of the models. All must have the shape and labels of the first."""
    config, facts = None, []
    total: dict[str, np.ndarray] = {}
    for path, share in models:
        weights = load_weights(path)
        if config is None:
            config = weights.config
        elif weights.config != config:
            raise DeltakwtError(f"{path}: has another shape or other labels than {models[0][0]}")
        facts.append({"share": share, "training": weights.training})
        for name, tensor in weights.tensors.items():
            total[name] = total.get(name, 0.0) + share * tensor.astype(np.float64)
    assert config is not None
    mean = {name: tensor.astype(np.float32) for name, tensor in total.items()}
    return Weights(config, mean, {"average": facts})
