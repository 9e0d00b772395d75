"""A temperature calibrates probabilities and changes no answer."""

from __future__ import annotations

import pytest
import torch

from deltakwt.train.calibrate import (
    calibrate,
    calibration_error,
    fit_temperature,
    fold_temperature,
)


def calibrated_logits(count: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and labels that are drawn with exactly the probabilities of the logits."""
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(count, 5, generator=rng)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=rng)[:, 0]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_the_temperature_of_a_distorted_model_is_found(temperature: float) -> None:
    logits, labels = calibrated_logits()
    assert fit_temperature(temperature * logits, labels) == pytest.approx(temperature, rel=0.03)
    fitted = calibrate(temperature * logits, labels)
    assert fitted.error < 0.01
    assert fitted.error <= fitted.error_before + 0.005
    assert fitted.clips == len(labels)


def test_the_calibration_error_is_the_gap_of_confidence_and_accuracy() -> None:
    scores = torch.tensor([[0.95, 0.05]] * 4 + [[0.65, 0.35]] * 4)
    labels = torch.tensor([0, 0, 0, 1, 0, 0, 1, 1])
    expected = (4 * abs(0.95 - 0.75) + 4 * abs(0.65 - 0.5)) / 8
    assert calibration_error(scores, labels) == pytest.approx(expected)
    assert calibration_error(torch.tensor([[1.0, 0.0]]), torch.tensor([0])) == 0


def test_a_folded_temperature_divides_the_logits() -> None:
    tensors = {"head.weight": torch.randn(8, 3), "head.bias": torch.randn(3), "x": torch.ones(1)}
    token = torch.randn(4, 8)
    folded = fold_temperature(tensors, 2.5)
    before = token @ tensors["head.weight"] + tensors["head.bias"]
    after = token @ folded["head.weight"] + folded["head.bias"]
    torch.testing.assert_close(after, before / 2.5)
    assert torch.equal(folded["x"], tensors["x"])
