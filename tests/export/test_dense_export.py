"""`deltakwt export --target onnx` and `tflite`: the engine's logits in the other runtimes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CLIPS, Run
from stride_models import every_second_frame

import deltakwt as package
from deltakwt.audio import read_clip
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.export.dense import write_dense
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

TOLERANCE = 1e-4
Call = Callable[[np.ndarray], np.ndarray]


def onnx_call(path: Path) -> Call:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options)
    return lambda sound: session.run(["logits"], {"sound": sound[None]})[0][0]


def tflite_call(path: Path) -> Call:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert (given["name"], made["name"]) == ("sound", "logits")

    def run(sound: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(given["index"], sound[None])
        interpreter.invoke()
        logits: np.ndarray = interpreter.get_tensor(made["index"])[0]
        return logits.copy()

    return run


CALLS: dict[str, Callable[[Path], Call]] = {"onnx": onnx_call, "tflite": tflite_call}


def clips() -> list[np.ndarray]:
    """Return 100 clips: our words at different places and levels in noise, and silence."""
    dice = np.random.default_rng(3)
    files = sorted(CLIPS.glob("*.flac"))
    made = [np.zeros(16_000, np.float32)]
    for number in range(99):
        word = np.roll(read_clip(files[number % len(files)]), int(dice.integers(-3000, 3000)))
        noise = dice.normal(0, 10 ** dice.uniform(-5, -1.5), 16_000)
        made.append((word * dice.uniform(0.05, 1) + noise).astype(np.float32))
    return made


def largest_difference(model: Model, call: Call, sounds: list[np.ndarray]) -> float:
    return max(
        float(np.abs(model.classify(sound, setting="dense").logits - call(sound)).max())
        for sound in sounds
    )


@pytest.mark.parametrize("target", CALLS)
def test_logits_agree_on_100_clips(
    target: str, deltakwt: Run, trained: str, tmp_path: Path
) -> None:
    out = tmp_path / f"model.{target}"
    done = deltakwt("export", "--target", target, "--model", trained, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "dense, sound (1, 16000) to logits" in done.stdout
    call = CALLS[target](out)
    assert largest_difference(package.load(trained, arithmetic="float"), call, clips()) < TOLERANCE


@pytest.mark.parametrize("target", CALLS)
def test_logits_agree_on_recorded_clips(target: str, shared: Path, tmp_path: Path) -> None:
    files = sorted((shared / "data" / "speech_commands_test_set_v0.02").glob("*/*.wav"))[::45][:100]
    assert len(files) == 100
    write_dense(target, load_weights(resolve("kwt-1")), tmp_path / "model")
    call = CALLS[target](tmp_path / "model")
    sounds = [read_clip(file) for file in files]
    assert largest_difference(package.load("kwt-1", arithmetic="float"), call, sounds) < TOLERANCE


@pytest.mark.parametrize("target", CALLS)
def test_a_model_of_several_heads(target: str, tmp_path: Path) -> None:
    from deltakwt.core.config import Config
    from deltakwt.core.engine import Engine
    from deltakwt.weights.folder import Weights, random_tensors

    config = Config(dim=48, heads=3, mlp=80, layers=2, labels=("a", "b", "c"))
    weights = Weights(config, random_tensors(config))
    write_dense(target, weights, tmp_path / "model")
    model = Model(config, Engine(config, weights.tensors))
    assert largest_difference(model, CALLS[target](tmp_path / "model"), clips()[:9]) < TOLERANCE


def test_the_onnx_file_says_its_opset_and_labels(trained: str, tmp_path: Path) -> None:
    onnx: Any = pytest.importorskip("onnx")
    weights = load_weights(resolve(trained))
    write_dense("onnx", weights, tmp_path / "model.onnx")
    model = onnx.load(str(tmp_path / "model.onnx"))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
    assert {p.key: p.value for p in model.metadata_props} == {
        "labels": "\n".join(weights.config.labels)
    }


def test_refusals(deltakwt: Run, tmp_path: Path, trained: str) -> None:
    for options, message in (
        (("--profile", "dense"), "is dense with the plain front end; leave out"),
        (("--weights", "int8"), "with --target onnx give f32"),
    ):
        done = deltakwt(
            "export", "--target", "onnx", "-m", trained, "--out", tmp_path / "x", *options
        )
        assert done.returncode == 2
        assert message in done.stderr
    with pytest.raises(DeltakwtError, match="is a folder"):
        write_dense("onnx", load_weights(resolve(trained)), tmp_path)


@pytest.mark.parametrize("target", CALLS)
def test_a_graph_of_a_model_with_a_stride_agrees(target: str, tmp_path: Path) -> None:
    weights, _ = every_second_frame("kwt-0")
    model = Model(weights.config, Engine(weights.config, weights.tensors))
    out = tmp_path / f"model.{target}"
    write_dense(target, weights, out)
    assert largest_difference(model, CALLS[target](out), clips()[:10]) < TOLERANCE
