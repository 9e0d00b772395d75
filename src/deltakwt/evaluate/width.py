"""How much of its width a model uses: components of its tokens, and correlation of its heads.

A wide model that was made by copying a narrow one computes the same thing several times: its tokens
lie in as few dimensions as the narrow tokens, and its heads attend alike. Two figures show it:

- *components*: how many principal components carry 99% of the variance of X, the input of a layer,
  over the tokens of all clips;
- *correlation*: Pearson's correlation of the softmax rows of two heads, mean over all rows of all
  clips, of the two heads of a layer that are most alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import ALL_SITES, Thresholds

VARIANCE = 0.99  # that the counted components carry
MOST_CORRELATION = 0.9  # of two heads of an independent model
NARROW = 64  # components: the width of KWT-1, which no copy of it can exceed
EVERYTHING = Thresholds(**dict.fromkeys(ALL_SITES, 0.0))  # every difference is kept: dense values


@dataclass(frozen=True)
class Width:
    """The two figures of every layer but the first and the last."""

    clips: int
    components: dict[int, int]  # number of the layer, from one: components of its input
    correlation: dict[int, float]  # of the two heads most alike; empty for a model of one head

    @property
    def middle(self) -> list[int]:
        """The numbers of the middle third of the layers."""
        layers = sorted(self.components)
        third = len(layers) // 3
        return layers[third : len(layers) - third]

    @property
    def is_independent(self) -> bool:
        """Whether no part of the model can be a copy of another, by both figures."""
        return (
            bool(self.correlation)
            and max(self.correlation.values()) < MOST_CORRELATION
            and all(self.components[layer] > NARROW for layer in self.middle)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "clips": self.clips,
            "variance": VARIANCE,
            "layers": [
                {
                    "layer": layer,
                    "components": components,
                    "head_correlation": self.correlation.get(layer),
                }
                for layer, components in self.components.items()
            ],
            "independent": self.is_independent,
        }


def measure_width(
    model: Model,
    sounds: Sequence[NDArray[np.float32]],
    report: Callable[[float, float], None] = lambda done, total: None,
) -> Width:
    """Return both figures over these clips (16000,), computed dense with the plain front end."""
    if not sounds:
        raise DeltakwtError("the use of the width needs at least one clip of sound")
    config, engine = model.config, model.engine
    layers = range(1, config.layers - 1)  # the input of the first is the embedding
    pairs = list(combinations(range(config.heads), 2))
    sums = np.zeros((config.layers, config.dim))
    squares = np.zeros((config.layers, config.dim, config.dim))
    alike = np.zeros((config.layers, len(pairs)))
    for number, sound in enumerate(sounds):
        trace = engine.trace(engine.features(sound), EVERYTHING)
        for layer in layers:
            x = np.asarray(trace["x"][layer, 1:], np.float64)  # tokens of sound
            sums[layer] += x.sum(axis=0)
            squares[layer] += x.T @ x
            heads = np.hsplit(np.asarray(trace["softmax"][layer], np.float64), config.heads)
            rows = [_standardised(head) for head in heads]
            alike[layer] += [float((rows[a] * rows[b]).mean()) for a, b in pairs]
        report(number + 1, len(sounds))
    tokens = len(sounds) * config.frames
    return Width(
        len(sounds),
        {layer + 1: _components(sums[layer], squares[layer], tokens) for layer in layers},
        {layer + 1: float(alike[layer].max() / len(sounds)) for layer in layers} if pairs else {},
    )


def _standardised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows with mean zero and variance one, so that a mean product is a correlation."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(spread, 1e-12))


def _components(total: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> int:
    """Return how many components carry VARIANCE of a covariance given by its sums."""
    mean = total / count
    values = np.linalg.eigvalsh(squares / count - np.outer(mean, mean))[::-1].clip(0)
    return int(np.searchsorted(np.cumsum(values) / values.sum(), VARIANCE) + 1)
