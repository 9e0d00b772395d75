"""The weighted mean of models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Run

from deltakwt.core.config import KWT1
from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.average import average, parse_shares
from deltakwt.weights.folder import Weights, load_folder, random_tensors, save_folder


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        save_folder(folder, Weights(KWT1, random_tensors(KWT1, seed), {"seed": seed}))
    return folders


def test_every_tensor_is_the_weighted_mean(two: list[Path]) -> None:
    first, second = map(load_folder, two)
    mean = average([(two[0], 0.25), (two[1], 0.75)])
    for name, tensor in mean.tensors.items():
        expected = 0.25 * first.tensors[name] + 0.75 * second.tensors[name]
        np.testing.assert_allclose(tensor, expected, rtol=1e-5, atol=1e-7)
    assert [part["training"]["seed"] for part in mean.training["average"]] == [0, 1]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["kwt-1"], "give a model and its share"),
        (["kwt-1=x", "b=1"], "give a model and its share"),
        (["kwt-1=nan", "b=1"], "give a model and its share"),
        (["kwt-1=1"], "at least two models"),
        (["a=0.5", "b=0.6"], "add up to 1, not 1.1"),
    ],
)
def test_wrong_shares_are_refused(parts: list[str], message: str) -> None:
    with pytest.raises(DeltakwtError, match=message):
        parse_shares(parts)


def test_the_command(deltakwt: Run, two: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "mean"
    arguments = ("models", "average", f"{two[0]}=0.5", f"{two[1]}=0.5", "--out", out)
    done = deltakwt(*arguments)
    assert done.returncode == 0, done.stderr
    assert load_folder(out).config == KWT1
    again = deltakwt(*arguments)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    other = deltakwt("models", "average", f"{two[0]}=0.5", "kwt-3=0.5", "--out", tmp_path / "c")
    assert "has another shape" in other.stderr
    assert not (tmp_path / "c").exists()
