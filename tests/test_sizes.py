"""Every size is stored, loaded, imported, run and compared with the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite_writer

import deltakwt
from deltakwt.audio import read_clip
from deltakwt.core import reference
from deltakwt.core.config import SIZES
from deltakwt.core.engine import Engine
from deltakwt.core.setting import Setting, Thresholds
from deltakwt.weights.folder import Weights, random_tensors, save_folder

# Of the authors' models. kwt-0 is a size of this project.
PARAMETERS = {"kwt-1": 607_308, "kwt-2": 2_394_252, "kwt-3": 5_360_844}
CLIP = Path(__file__).parent.parent / "examples" / "clips" / "yes.flac"
THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1_0.3")


@pytest.mark.parametrize("size", PARAMETERS)
def test_a_size_has_the_parameters_of_the_authors_model(size: str) -> None:
    shapes = SIZES[size].shapes().values()
    assert sum(int(np.prod(shape)) for shape in shapes) == PARAMETERS[size]


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_is_loaded_and_run(size: str, tmp_path: Path) -> None:
    config = SIZES[size]
    save_folder(tmp_path / size, Weights(config, random_tensors(config, seed=1)))
    model = deltakwt.load(tmp_path / size)
    assert model.config == config
    dense = model(CLIP)
    exact = model(CLIP, setting=Thresholds(x=0, q=0, k=0, scores=0, softmax=0, heads=0))
    np.testing.assert_allclose(exact.logits, dense.logits, atol=1e-4)
    delta = model(CLIP, setting=Setting(THRESHOLDS))
    assert delta.macs is not None
    assert 0 < delta.macs.model_percent < 100
    assert delta.macs.to_json()["executed"]["model_percent"] > delta.macs.model_percent


@pytest.mark.parametrize("size", SIZES)
def test_an_authors_file_of_this_size_is_imported(size: str, tmp_path: Path) -> None:
    config, tensors = SIZES[size], random_tensors(SIZES[size], seed=2)
    path = tmp_path / "non_stream.tflite"
    path.write_bytes(tflite_writer.write(tflite_writer.authors_names(config, tensors)))
    model = deltakwt.load(path)
    engine = Engine(config, tensors)
    features = engine.features(read_clip(CLIP))
    np.testing.assert_array_equal(model.engine.dense(features), engine.dense(features))


@pytest.mark.parametrize("size", SIZES)
def test_two_layers_follow_the_reference(size: str) -> None:
    config = replace(SIZES[size], layers=2)
    tensors = random_tensors(config, seed=3)
    engine = Engine(config, tensors)
    features = engine.features(read_clip(CLIP))
    dense = reference.dense(config, tensors, features.astype(np.float64))
    np.testing.assert_allclose(engine.dense(features), dense, atol=1e-3)
    found, expected = (
        engine.delta(features, THRESHOLDS),
        reference.delta(config, tensors, features.astype(np.float64), THRESHOLDS),
    )
    np.testing.assert_allclose(found.macs.sum(), expected.macs.sum(), rtol=0.01)
    assert found.logits.argmax() == expected.logits.argmax()
