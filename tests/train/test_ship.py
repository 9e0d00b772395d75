"""What is shipped is small, clean of this machine, and measured as it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from deltakwt.core.config import LABELS
from deltakwt.core.model import load
from deltakwt.data.speech_commands import draw
from deltakwt.evaluate.accuracy import evaluate
from deltakwt.train import ship
from deltakwt.train.card import render
from deltakwt.weights.folder import Weights, load_weights, save_folder

LOG = ("1,2.0,0.5,0.001", "2,1,0.9,0")


def finished_run(folder: Path, trained: Path) -> Path:
    """As a training leaves it, with the weights of a model that knows the words."""
    weights = load_weights(trained)
    plan = {"data": ["/home/me/speech"], "teacher": "/home/me/arm-kwt1/x.tflite"}
    plan |= {"seed": 1, "epochs": 2, "delta": "", "teacher_share": 0.5}
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
    for told in json.loads(config)["training"]["runs"]:
        assert told["plan"]["teacher"] == "arm-kwt1"
    log = ship.training_log([run, run]).splitlines()
    assert log == ["run,epoch,loss,validation,rate", *(f"{n},{row}" for n in (1, 2) for row in LOG)]


def test_silence_is_favoured_as_far_as_no_right_word_is_lost(
    tmp_path: Path, arm_kwt1: Path, shared: Path
) -> None:
    words = draw(shared / "data" / "speech_commands_test_set_v0.02", limit=120)
    model = load(arm_kwt1)
    model.thresholds = None
    favour = ship.spare(model, words)
    assert 0 < favour <= ship.MOST_FAVOUR
    before = evaluate(model, words).confusion
    weights = load_weights(arm_kwt1)
    weights.tensors["head.bias"][0] += favour
    save_folder(tmp_path / "favours", weights)
    after = evaluate(load(tmp_path / "favours"), words).confusion
    assert after.diagonal().sum() >= before.diagonal().sum()


def test_noise_is_mixed_at_the_ratio_it_says() -> None:
    rng = np.random.default_rng(0)
    sounds = 0.05 * rng.standard_normal((4, 16_000)).astype(np.float32)
    noises = [0.3 * rng.standard_normal(40_000).astype(np.float32)]
    noise = ship._mix(sounds, noises, 10.0, rng) - sounds
    ratio = 10 * np.log10((sounds**2).mean(axis=1) / (noise**2).mean(axis=1))
    np.testing.assert_allclose(ratio, 10.0, atol=0.1)


def test_the_card_tells_both_protocols_classes_deltas_noise_and_limits() -> None:
    classes = {label: {"accuracy": 0.5, "clips": 10} for label in LABELS}
    confusion = {label: dict.fromkeys(LABELS, 1) for label in LABELS}
    run = {"accuracy": 0.975, "clips": 120, "per_class": classes, "confusion": confusion}
    dense = {
        f"{split} {silence}": run for split in ("test", "val") for silence in ("zero", "noise")
    }
    setting = {"name": "dense", "thresholds": "", "steady": "plain", "zero": 0.97, "noise": 0.96}
    setting |= {"mhsa_percent": None, "model_percent": 12.34, "noise_percent": 7.0}
    facts = {
        "dense": dense,
        "settings": [setting],
        "control": [setting | {"model_percent": 43.21}],
        "noise": [{"snr_db": None, "plain": 0.9, "steady": 0.8}],
    }
    plan = {"seed": 7, "epochs": 2, "delta": "", "teacher": "arm-kwt-1", "teacher_share": 0.5}
    plan["recipe"] = {"steady_chance": 0.75}
    first = {"plan": plan | {"lessons": 0.12}, "validation": 0.9, "seconds": 7200}
    then = {"plan": plan | {"delta": "0.1_0.2"}, "validation": 0.91, "seconds": 3600}
    also = "and from two more clips"
    stored = {"half": True, "runs": [first, then], "silence_bias": 1.25, "also": also}
    log = "run,epoch,loss,validation,rate\n1,1,2.0,0.5,0.001\n"
    commands = ["deltakwt train --out first", "deltakwt train --from first"]
    card = render("kwt-1", commands, stored, facts, log)
    expected = ("97.50%", "12.3%", "43.2%", "as recorded", "arm-kwt-1", "CC BY 4.0", "`_silence_`")
    expected += (
        *commands,
        "Seed 7",
        "first 12%",
        "`0.1_0.2`",
        "3.0 hours",
        "75% of the clips",
        "1.25 was added",
        f"digital silence), {also}.",
    )
    for text in expected:
        assert text in card
