"""The runtimes that are compared: our core, and what other people use.

A `Runner` is one way to get from features or sound to logits. Peers are optional: `probe` tries
each in a process of its own, because a runtime that uses instructions which this processor lacks
ends its process without a message.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.core.setting import DENSE, Setting
from deltakwt.weights.folder import Weights
from deltakwt.weights.onnx_model import to_onnx
from deltakwt.workers import start_process

Floats = NDArray[np.float32]
BASELINE = "ONNX Runtime fp32"  # all ratios are relative to it
PROBE_SECONDS = 300.0  # torch compiles C++ first


@dataclass(frozen=True)
class Runner:
    """One way to get from features (frames, 40), or audio (16000,), to logits (labels,)."""

    engine: str
    input: str  # features or audio
    run: Callable[[Floats], Floats]
    setting: Setting = DENSE  # its front end makes the features that are given

    @property
    def mode(self) -> str:
        """Where deltas are used: dense, mhsa (attention only) or model."""
        return mode_of(self.setting)

    @property
    def is_exact(self) -> bool:
        """Whether it must give the answers of the dense model."""
        return self.mode == "dense" and "int8" not in self.engine


def mode_of(setting: Setting) -> str:
    """Return where a setting uses deltas: dense, mhsa (attention only) or model."""
    if setting.thresholds is None:
        return "dense"
    values = (setting.thresholds.mlp_in, setting.thresholds.mlp_hidden)
    return "mhsa" if values == (None, None) else "model"


def our_runners(engine: Engine, settings: list[Setting]) -> Iterator[Runner]:
    """Yield our core with one set of kernels, dense and with each setting, by both inputs."""
    name = f"deltakwt {engine.isa}"
    if engine.arithmetic == "fixed":
        name = f"deltakwt fixed {engine.isa}"
    for setting in [DENSE, *settings]:
        run, front_end = engine.runner(setting.thresholds), setting.front_end

        def from_audio(audio: Floats, run: Any = run, front_end: Any = front_end) -> Floats:
            return np.asarray(run(engine.features(audio, front_end)))

        yield Runner(name, "features", run, setting)
        yield Runner(name, "audio", from_audio, setting)


# ------------------------------------------------------------------ other runtimes


def onnxruntime_fp32(weights: Weights, _: Path) -> Runner:
    """Return ONNX Runtime with 32-bit floats: the baseline."""
    return Runner(BASELINE, "features", _onnxruntime(to_onnx(*_parts(weights))))


def onnxruntime_int8(weights: Weights, _: Path) -> Runner:
    """Return ONNX Runtime with 8-bit weights and dynamically quantised activations.

    Its AVX2 kernels overflow with all 8 bits of a weight, so it uses 7 (reduce_range).
    """
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # it recommends a pre-processing step
    with TemporaryDirectory() as folder:
        plain, small = os.path.join(folder, "f32.onnx"), os.path.join(folder, "int8.onnx")
        Path(plain).write_bytes(to_onnx(*_parts(weights)))
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, reduce_range=True)
        run = _onnxruntime(Path(small).read_bytes())
    return Runner("ONNX Runtime int8", "features", run)


def _onnxruntime(model: bytes) -> Callable[[Floats], Floats]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda features: np.asarray(session.run(None, {"features": features[None]})[0][0])


def openvino_f32(weights: Weights, _: Path) -> Runner:
    """Return OpenVINO with 32-bit floats."""
    import openvino

    compiled = openvino.Core().compile_model(
        openvino.Core().read_model(to_onnx(*_parts(weights))),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1},
    )
    request = compiled.create_infer_request()

    def run(features: Floats) -> Floats:
        return np.array(request.infer({0: features[None]})[0][0])

    return Runner("OpenVINO f32", "features", run)


def litert(_: Weights, path: Path) -> Runner:
    """Return LiteRT with XNNPACK kernels, which runs the authors' file from sound."""
    if path.suffix != ".tflite":
        raise ValueError("runs .tflite files only")
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    target = interpreter.get_output_details()[0]["index"]

    def run(audio: Floats) -> Floats:
        interpreter.set_tensor(source, audio[None])
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(target)[0])

    return Runner("LiteRT XNNPACK", "audio", run)


def torch_eager(weights: Weights, _: Path) -> Runner:
    """Return the PyTorch network of the package, run eagerly."""
    return _torch("torch eager", weights, is_compiled=False)


def torch_compile(weights: Weights, _: Path) -> Runner:
    """Return the PyTorch network of the package, run by torch.compile."""
    return _torch("torch compile", weights, is_compiled=True)


def _torch(name: str, weights: Weights, is_compiled: bool) -> Runner:
    try:
        from deltakwt.train.net import inference_call
    except ImportError:
        raise MissingExtra("the torch peer", "train") from None
    return Runner(name, "features", inference_call(weights.config, weights.tensors, is_compiled))


def _parts(weights: Weights) -> tuple[Any, Any]:
    return weights.config, weights.tensors


PEERS: dict[str, Callable[[Weights, Path], Runner]] = {
    "ort": onnxruntime_fp32,
    "ort-int8": onnxruntime_int8,
    "openvino": openvino_f32,
    "litert": litert,
    "torch": torch_eager,
    "torch-compile": torch_compile,
}


# ------------------------------------------------------------------ which of them run here


def probe(peer: str, weights: Weights, path: Path) -> str | None:
    """Return None if the peer gives logits here, or else why it does not."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_try, args=(theirs, peer, weights, path), daemon=True)
    start_process(process)
    theirs.close()
    reason = _wait(ours)
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()
    elif process.exitcode and process.exitcode < 0:
        return f"ends its process: {signal.Signals(-process.exitcode).name}"
    return reason


def _wait(connection: Any) -> str | None:
    try:
        if not connection.poll(PROBE_SECONDS):
            return f"no answer in {PROBE_SECONDS:.0f} s"
        return connection.recv()  # type: ignore[no-any-return]
    except EOFError:
        return "ended its process"


def _try(connection: Any, peer: str, weights: Weights, path: Path) -> None:
    try:
        runner = PEERS[peer](weights, path)
        shape = (weights.config.frames, weights.config.features)
        sound = np.zeros(shape if runner.input == "features" else CLIP_SAMPLES, np.float32)
        good = bool(np.isfinite(runner.run(sound)).all())
        connection.send(None if good else "gives NaN")
    except ImportError as error:
        connection.send(f"not installed ({error.name})")
    except DeltakwtError as error:
        connection.send(str(error))
    except Exception as error:
        connection.send(" ".join(str(error).split())[:200])
