"""A shipped model is small, calibrated, free of local paths, and measured as its card says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from copies import copied

from deltakwt.core.config import KWT3, LABELS
from deltakwt.core.model import load
from deltakwt.data.speech_commands import draw
from deltakwt.evaluate.accuracy import evaluate
from deltakwt.train import ship
from deltakwt.train.card import render, use_of_width
from deltakwt.weights.folder import Weights, load_weights, save_folder
from deltakwt.weights.registry import resolve

LOG = ("1,2.0,0.5,0.001", "2,1,0.9,0")


def finished_run(folder: Path, trained: Path) -> Path:
    """Write a folder as training leaves it, with the weights of a trained model."""
    weights = load_weights(trained)
    plan = {"data": ["/home/me/speech"], "teachers": ["/home/me/arm-kwt1/x.tflite"]}
    plan |= {"speech": ["/home/me/talk"], "rooms": "/home/me/halls"}
    facts = {"plan": plan, "validation": 0.9, "seconds": 7200}
    save_folder(folder, Weights(weights.config, weights.tensors, facts))
    (folder / "log.csv").write_text("\n".join(["epoch,loss,validation,rate", *LOG]))
    return folder


def test_weights_are_stored_in_16_bits_where_no_answer_changes(
    tmp_path: Path, arm_kwt1: Path, shared: Path
) -> None:
    run = finished_run(tmp_path / "run", arm_kwt1)
    tests = [draw(shared / "data" / "speech_commands_test_set_v0.02", limit=60)]
    stored = ship.store([run, run], tmp_path / "kwt-1", tests, tests[0])
    assert stored["half"]
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path / "kwt-1", run)]
    assert sizes[0] < 0.52 * sizes[1]
    config = (tmp_path / "kwt-1" / "config.json").read_text()
    assert "/home" not in config
    for facts in json.loads(config)["training"]["runs"]:
        assert facts["plan"]["teachers"] == ["arm-kwt1"]
        assert facts["plan"]["rooms"] == "halls"
    log = ship.training_log([run, run]).splitlines()
    assert log == ["run,epoch,loss,validation,rate", *(f"{n},{row}" for n in (1, 2) for row in LOG)]


def test_an_uncalibrated_run_is_calibrated(
    tmp_path: Path,
    arm_kwt1: Path,
    shared: Path,
    toy_speech: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ship, "SPEECH_CUTS", 500)
    run = finished_run(tmp_path / "run", arm_kwt1)
    tests = [draw(shared / "data" / "speech_commands_test_set_v0.02", limit=60)]
    stored = ship.store([run], tmp_path / "kwt-1", tests, tests[0], toy_speech)
    calibration = stored["calibration"]
    assert calibration["clips"] == 560
    assert abs(calibration["temperature"] - 1) > 0.01
    before, after = load_weights(run).tensors, load_weights(tmp_path / "kwt-1").tensors
    expected = before["head.weight"] / calibration["temperature"]
    np.testing.assert_allclose(after["head.weight"], expected, rtol=2e-3, atol=1e-4)


def test_silence_is_favoured_as_far_as_no_right_word_is_lost(
    tmp_path: Path, arm_kwt1: Path, shared: Path
) -> None:
    words = draw(shared / "data" / "speech_commands_test_set_v0.02", limit=120)
    model = load(arm_kwt1, arithmetic="float")
    model.setting = "dense"
    logits, true = ship._validation_logits(model.engine, words, model.labels)
    bias = ship.spare_bias(logits, true, model.labels)
    assert 0 < bias <= ship.MOST_BIAS
    before = evaluate(model, words).confusion
    weights = load_weights(arm_kwt1)
    weights.tensors["head.bias"] = weights.tensors["head.bias"] + np.eye(1, 12)[0] * bias
    save_folder(tmp_path / "favours", weights)
    after = evaluate(load(tmp_path / "favours", arithmetic="float"), words).confusion
    assert after.diagonal().sum() >= before.diagonal().sum()


def test_unknown_words_are_lowered_as_is_best_for_the_validation_clips() -> None:
    """Two clips of "yes" become right below -0.4 and -1.1, one unknown word is lost at -2.1."""
    logits = np.zeros((4, 12), np.float32)
    logits[:, 2] = 5.0
    logits[:, 1] = [5.4, 6.1, 7.1, 4.0]
    true = np.array([2, 2, 1, 2])
    assert ship.unknown_bias(logits, true, LABELS) == -1.75  # equally good: -1.25 to -2.0
    assert ship.unknown_bias(logits[3:], true[3:], LABELS) == -1.25  # no matter: the middle of all


def test_noise_is_mixed_at_the_stated_ratio() -> None:
    rng = np.random.default_rng(0)
    sounds = 0.05 * rng.standard_normal((4, 16_000)).astype(np.float32)
    noises = [0.3 * rng.standard_normal(40_000).astype(np.float32)]
    noise = ship._mix(sounds, noises, 10.0, rng) - sounds
    ratio = 10 * np.log10((sounds**2).mean(axis=1) / (noise**2).mean(axis=1))
    np.testing.assert_allclose(ratio, 10.0, atol=0.1)


@pytest.fixture
def facts() -> dict[str, object]:
    classes = {label: {"accuracy": 0.5, "clips": 10} for label in LABELS}
    confusion = {label: dict.fromkeys(LABELS, 1) for label in LABELS}
    run = {"accuracy": 0.975, "clips": 120, "per_class": classes, "confusion": confusion}
    protocols = [f"{split} {silence}" for split in ("test", "val") for silence in ("zero", "noise")]
    setting = {"name": "dense", "thresholds": "", "front_end": "plain", "zero": 0.97}
    setting |= {"noise": 0.96, "mhsa_percent": None, "model_percent": 12.34, "noise_percent": 7.0}
    return {
        "dense": dict.fromkeys(protocols, run),
        "settings": [setting],
        "control": [setting | {"model_percent": 43.21}],
        "noise": [{"snr_db": None, "plain": 0.9, "smoothed": 0.8}],
    }


def test_the_card_states_training_accuracy_reliability_sources_and_limits(
    facts: dict[str, object],
) -> None:
    plan = {"seed": 7, "epochs": 2, "delta": "", "teachers": ["arm-kwt-1"], "teacher_share": 0.5}
    plan |= {"recipe": {"front_end_chance": 0.75}, "delta_scale": [0.3, 1.3]}
    first = {"plan": plan | {"layerwise": 0.12}, "validation": 0.9, "seconds": 7200}
    then = {"plan": plan | {"delta": "0.1_0.2"}, "validation": 0.91, "seconds": 3600}
    then["sources"] = [
        {"role": "words", "name": "Speech Commands", "licence": "CC BY 4.0", "url": "https://a.b"},
        {"role": "speech", "name": "talk", "licence": "licence not stated"},
    ]
    then["speech_accepts"] = 0.0123
    calibration = {"temperature": 0.8, "error": 0.0111, "error_before": 0.0999, "clips": 5000}
    stored = {"half": True, "runs": [first, then, {}], "silence_bias": 1.25}
    stored |= {"unknown_bias": -0.75}
    stored |= {"calibration": calibration, "sources": [{"name": "ESC-50", "licence": "CC0"}]}
    log = "run,epoch,loss,validation,rate\n1,1,2.0,0.5,0.001\n"
    commands = ["deltakwt train --out first", "deltakwt train --from first"]
    card = render("kwt-1", commands, stored, facts, log)
    expected = (
        *("97.50%", "12.3%", "43.2%", "as recorded", "arm-kwt-1", "`_silence_`"),
        *(*commands, "Seed 7", "first 12%", "`0.1_0.2`", "3.0 hours", "75% of the clips"),
        *(
            "0.75 was subtracted from the logit of unknown",
            "1.25 was added",
            "1.11%",
            "9.99%",
            "1.23% of the validation cuts of running speech",
        ),
        *("- Speech Commands: CC BY 4.0; https://a.b (words)", "- ESC-50: CC0"),
        "- talk: licence not stated (speech)",
    )
    for text in expected:
        assert text in card


def test_the_card_of_a_wide_model_shows_the_use_of_its_width() -> None:
    layers = [{"layer": 2, "components": 91, "head_correlation": 0.1234}]
    text = use_of_width("kwt-3", {"clips": 57, "layers": layers, "independent": True})
    assert "| 2 | 91 | 0.123 |" in text
    assert "deltakwt models width kwt-3" in text
    assert "copies." not in text
    assert "copies." in use_of_width("w", {"clips": 1, "layers": layers, "independent": False})


def test_a_wide_run_says_whether_its_parts_are_copies(trained: str, test_set: Path) -> None:
    narrow = load_weights(resolve(trained))
    wide = Weights(KWT3, copied(narrow.tensors, KWT3))
    found = ship._width(wide, test_set)
    assert found["independent"] is False
    assert all(row["head_correlation"] > 0.999 for row in found["layers"])


def test_a_folder_named_like_a_shipped_model_is_measured_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Path] = []
    monkeypatch.chdir(tmp_path)
    Path("kwt-1").mkdir()
    for step in ("draw", "quantize_folder", "calibration_sounds", "measure"):
        monkeypatch.setattr(ship, step, lambda *given, **named: None)
    monkeypatch.setattr(ship, "store", lambda *given: {})
    monkeypatch.setattr(ship, "load", measured.append)
    monkeypatch.setattr(ship, "render", lambda *given: "")
    ship.ship([], to=Path("kwt-1"), test=tmp_path, data=tmp_path, command=[])
    assert measured == [tmp_path / "kwt-1"]
