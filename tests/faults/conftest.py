"""A small model and enough clips to keep a command busy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deltakwt.core.config import Config
from deltakwt.weights.folder import Weights, random_tensors, save_folder

SMALL = Config(dim=16, heads=2, mlp=32, layers=2)


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A model folder of random weights, quick to run."""
    folder = tmp_path / "small"
    save_folder(folder, Weights(SMALL, random_tensors(SMALL)))
    return folder


@pytest.fixture(scope="session")
def many_clips(test_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test set with every clip many times: some seconds of work."""
    root = tmp_path_factory.mktemp("many") / test_set.name
    for source in test_set.rglob("*.wav"):
        folder = root / source.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(150):
            os.link(source, folder / f"{number:03d}{source.name}")
    return root
