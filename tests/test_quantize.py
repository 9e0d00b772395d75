"""Scales in model folders, `deltakwt quantize`, and models in fixed point: clips and streams."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run

import deltakwt
from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.model import Model
from deltakwt.core.native import available_isas
from deltakwt.core.setting import DENSE, FrontEndSetting, Profiles, Setting, Thresholds
from deltakwt.data.calibration import calibration_sounds
from deltakwt.listen.decision import Decision
from deltakwt.listen.runner import StreamRunner
from deltakwt.weights import quantize as scales
from deltakwt.weights import registry
from deltakwt.weights.folder import Weights, load_folder, random_tensors, save_folder

SMALL = Config(dim=24, heads=2, mlp=40, layers=2, labels=("_silence_", "_unknown_", "yes"))
THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1")
STABLE = FrontEndSetting(smooth=True, floor=2.0)


def small_tensors() -> dict[str, np.ndarray]:
    tensors = random_tensors(SMALL, 3)
    tensors["embed.weight"][0] *= 0.01  # the first MFCC of silence is -349
    return tensors


@pytest.fixture(scope="module")
def sounds() -> np.ndarray:
    clips = [soundfile.read(path, dtype="float32")[0] for path in sorted(CLIPS.glob("*.flac"))]
    return np.stack([np.resize(clip, 16_000) for clip in clips * 2][:24])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sounds: np.ndarray) -> Path:
    """A small model of odd sizes with scales."""
    made = tmp_path_factory.mktemp("models") / "small"
    save_folder(made, Weights(SMALL, small_tensors()))
    found = scales.quantize_folder(made, sounds)
    assert found.headroom.shape == (3, 11)
    assert found.headroom.min() > 1
    return made


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "model"))


def test_the_arithmetic_is_chosen_by_load(folder: Path, random_model: Path) -> None:
    assert deltakwt.load(folder, arithmetic="fixed").arithmetic == "fixed"
    assert deltakwt.load(folder, arithmetic="float").arithmetic == "float"
    assert deltakwt.load(folder).arithmetic == "fixed"
    assert "arithmetic='fixed'" in repr(deltakwt.load(folder))
    assert deltakwt.load(random_model).arithmetic == "float"
    with pytest.raises(DeltakwtError, match="deltakwt quantize"):
        deltakwt.load(random_model, arithmetic="fixed")
    with pytest.raises(DeltakwtError, match="must be one of float, fixed"):
        deltakwt.load(folder, arithmetic="double")


def test_copies_keep_the_arithmetic(folder: Path) -> None:
    for arithmetic in ("float", "fixed"):
        model = deltakwt.load(folder, arithmetic=arithmetic)
        assert copy.copy(model).arithmetic == arithmetic
        assert pickle.loads(pickle.dumps(model)).arithmetic == arithmetic


def test_scales_of_other_weights_are_refused_and_removed(copied: Path) -> None:
    weights = load_folder(copied)
    stale = (copied / "fixed.json").read_bytes()
    tensors = weights.tensors | {"head.bias": weights.tensors["head.bias"] + 1}
    save_folder(copied, replace(weights, tensors=tensors))
    assert not (copied / "fixed.json").exists()  # the old scales are gone
    (copied / "fixed.json").write_bytes(stale)
    with pytest.raises(DeltakwtError, match="made for other weights"):
        deltakwt.load(copied, arithmetic="fixed")
    assert deltakwt.load(copied, arithmetic="float").arithmetic == "float"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format"),
        ({"x": [1, 2]}, "x must be 3 integers"),
        ({"q": [1, 99]}, "q must be 2 integers from 0 to 15"),
        ({"k": ["a", 1]}, "k must be"),
        ({"features": None}, "features must be 40"),
    ],
)
def test_a_damaged_file_is_refused(copied: Path, change: dict[str, object], reason: str) -> None:
    path = copied / "fixed.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DeltakwtError, match=reason):
        deltakwt.load(copied, arithmetic="fixed")


def test_a_huge_file_is_refused(copied: Path) -> None:
    (copied / "fixed.json").write_text("[" + "0," * (1 << 16) + "0]")
    with pytest.raises(DeltakwtError, match="too large"):
        deltakwt.load(copied, arithmetic="fixed")


def test_a_model_that_does_not_fit_is_refused_with_layer_and_tensor(sounds: np.ndarray) -> None:
    tensors = small_tensors()
    tensors["blocks.1.mlp_in.weight"] = tensors["blocks.1.mlp_in.weight"] * np.float32(2e4)
    with pytest.raises(DeltakwtError, match="layer 1, hidden"):
        scales.quantize(Weights(SMALL, tensors), Profiles(), sounds)


def test_saturation_is_counted(folder: Path, sounds: np.ndarray) -> None:
    weights, model = load_folder(folder), deltakwt.load(folder, arithmetic="fixed")
    assert isinstance(model.engine, FixedEngine)
    assert model(sounds[0]).saturated == 0
    good = model.engine.scales
    tight = replace(good, x=(*good.x[:2], min(15, good.x[2] + 4)))
    engine = FixedEngine(weights.config, weights.tensors, tight)
    limited = Model(weights.config, engine, name="limited")
    assert limited(sounds[0]).saturated > 0
    assert limited(sounds[0], setting=THRESHOLDS).saturated > 0
    runner = StreamRunner(limited, Setting(THRESHOLDS), Decision(reuse=0))
    runner.push(sounds[0])
    assert runner.saturated > 0


@pytest.mark.parametrize("thresholds", [None, THRESHOLDS], ids=["dense", "delta"])
def test_a_stream_computes_its_windows_as_clips(
    folder: Path, sounds: np.ndarray, thresholds
) -> None:
    weights, good = load_folder(folder), deltakwt.load(folder, arithmetic="fixed").engine
    assert isinstance(good, FixedEngine)
    sound = np.concatenate(list(sounds[:2]))
    expected = None
    for isa in available_isas():
        engine = FixedEngine(weights.config, weights.tensors, good.scales, isa)
        model = Model(weights.config, engine, name="small")
        runner = StreamRunner(model, Setting(thresholds), Decision(reuse=0))
        logits = np.concatenate([runner.push(part) for part in np.array_split(sound, 7)])
        clips = [sound[start : start + 16_000] for start in range(0, 16_001, 1_600)]
        single = [engine.logits(engine.features(clip), thresholds) for clip in clips]
        np.testing.assert_array_equal(logits, single)
        expected = logits if expected is None else expected
        np.testing.assert_array_equal(logits, expected)
        assert runner.meter.total.macs > 0


def test_batches_and_clips_agree(folder: Path, sounds: np.ndarray) -> None:
    model = deltakwt.load(folder, arithmetic="fixed")
    for setting in (DENSE, Setting(THRESHOLDS, STABLE)):
        batch = model.engine.batch(sounds[:3], setting, threads=2)
        single = [model.classify(clip, setting=setting).logits for clip in sounds[:3]]
        np.testing.assert_array_equal(batch.logits, single)
    float_model = deltakwt.load(folder, arithmetic="float")
    difference = model(sounds[0]).logits - float_model(sounds[0]).logits
    assert np.abs(difference).max() < 0.05


def test_a_trace_needs_float(folder: Path) -> None:
    model = deltakwt.load(folder, arithmetic="fixed")
    with pytest.raises(DeltakwtError, match="arithmetic='float'"):
        model(np.zeros(16_000), setting=THRESHOLDS, trace=True)


def test_calibration_clips_are_words_and_noise(full_set: Path, test_set: Path) -> None:
    assert calibration_sounds(full_set, 30).shape == (30, 16_000)
    assert len(calibration_sounds(test_set)) == 24
    np.testing.assert_array_equal(calibration_sounds(full_set, 9), calibration_sounds(full_set, 9))


def test_the_command_writes_scales(copied: Path, full_set: Path, deltakwt: Run) -> None:
    (copied / "fixed.json").unlink()
    done = deltakwt("quantize", copied, "--data", full_set, "--clips", 24)
    assert done.returncode == 0, done.stderr
    assert "mlp_out" in done.stdout
    assert "same answer" in done.stdout
    assert scales.load_scales(copied, load_folder(copied)) is not None
    done = deltakwt("eval", "--model", copied, "--data", full_set, "--arithmetic", "fixed")
    assert done.returncode == 0, done.stderr
    assert ", fixed, " in done.stdout
    done = deltakwt("spot", CLIPS / "yes.flac", "--model", copied, "--arithmetic", "double")
    assert done.returncode == 2
    assert "must be one of float, fixed" in done.stderr


def test_shipped_models_have_scales_of_their_weights() -> None:
    for name in ("kwt-0", "kwt-1", "kwt-3"):
        path = registry.SHIPPED / name
        if (path / "model.safetensors").is_file():
            assert scales.load_scales(path, load_folder(path)) is not None


def test_the_authors_file_has_shipped_scales(arm_kwt1: Path, tmp_path: Path) -> None:
    model = deltakwt.load(arm_kwt1, arithmetic="fixed")
    assert model(CLIPS / "yes.flac").label == "yes"
    registry.import_tflite(arm_kwt1, tmp_path / "arm")
    assert deltakwt.load(tmp_path / "arm", arithmetic="fixed").arithmetic == "fixed"
