"""Calibration: a temperature that makes probabilities agree with how often answers are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 10
LIMITS = (0.05, 20.0)  # of the temperature
STEPS = 60  # of the search: the interval shrinks to 0.618 of itself in each


@dataclass(frozen=True)
class Calibration:
    """A fitted temperature and the expected calibration error before and after it."""

    temperature: float
    error_before: float
    error: float
    clips: int  # validation clips and cuts of speech
    bins: int = BINS

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def calibrate(logits: Tensor, labels: Tensor) -> Calibration:
    """Fit the temperature to logits (n, labels) and true labels (n,)."""
    logits = logits.double().cpu()
    labels = labels.cpu()
    temperature = fit_temperature(logits, labels)
    return Calibration(
        temperature,
        calibration_error(logits.softmax(1), labels),
        calibration_error((logits / temperature).softmax(1), labels),
        len(labels),
    )


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature of the lowest cross entropy, by golden-section search.

    The cross entropy is convex in 1/temperature, so it has one minimum.
    """
    low, high = 1 / LIMITS[1], 1 / LIMITS[0]
    golden = (5**0.5 - 1) / 2

    def loss(factor: float) -> float:
        return float(F.cross_entropy(factor * logits, labels))

    for _ in range(STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) < loss(right):
            high = right
        else:
            low = left
    return 2 / (low + high)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error: the mean gap of confidence and accuracy.

    Answers are grouped into `bins` equal intervals of confidence, weighted by their number.
    """
    confidence, answer = probabilities.max(1)
    right = (answer == labels).double()
    index = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64)
    gaps.index_add_(0, index, confidence.double() - right)
    return float(gaps.abs().sum() / len(labels))


def fold_temperature(tensors: Mapping[str, Tensor], temperature: float) -> dict[str, Tensor]:
    """Return the weights with the head divided by the temperature: same answers, other scores."""
    head = {name: tensors[name] / temperature for name in ("head.weight", "head.bias")}
    return {**tensors, **head}
