"""Everything that takes part in the race: a name, what it is fed, and a call that gives logits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.bench.onnx_model import to_onnx
from deltakwt.core.engine import Engine
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.weights.folder import Weights

Floats = NDArray[np.float32]
BASELINE = "ONNX Runtime fp32"  # every ratio is against it


@dataclass(frozen=True)
class Runner:
    """One way to get from features (98, 40), or audio (16000,), to logits (labels,)."""

    engine: str
    mode: str  # dense, mhsa or model: where deltas are taken
    input: str  # features or audio
    run: Callable[[Floats], Floats]
    front_end: FrontEndSetting = PLAIN  # of the features it is fed
    setting: str = "dense"  # name of its thresholds

    @property
    def is_exact(self) -> bool:
        """Whether it must give the dense model's answers."""
        return self.mode == "dense" and "int8" not in self.engine


@dataclass(frozen=True)
class Setting:
    """Thresholds, the front end that goes with them, and a name for both."""

    name: str
    mode: str  # mhsa or model
    thresholds: Thresholds
    front_end: FrontEndSetting = PLAIN


def ours(engine: Engine, settings: list[Setting]) -> Iterator[Runner]:
    """Our core with one set of kernels: dense and with deltas, from features and from sound."""
    name = f"deltakwt {engine.isa}"
    dense = Setting("dense", "dense", Thresholds())
    for setting in [dense, *settings]:
        thresholds = None if setting is dense else setting.thresholds
        table = None if thresholds is None else thresholds.array(engine.config.layers)
        front_end = setting.front_end

        def from_features(features: Floats, table: Any = table) -> Floats:
            return engine._native.run(features, table, False)[0]

        def from_audio(
            audio: Floats, table: Any = table, front_end: FrontEndSetting = front_end
        ) -> Floats:
            return engine._native.run(engine.features(audio, front_end), table, False)[0]

        label = setting.name
        yield Runner(name, setting.mode, "features", from_features, front_end, label)
        yield Runner(name, setting.mode, "audio", from_audio, front_end, label)


# ------------------------------------------------------------------ what people use instead


def onnxruntime_fp32(weights: Weights, _: Path) -> Runner:
    return Runner(BASELINE, "dense", "features", _onnxruntime(to_onnx(*_parts(weights))))


def onnxruntime_int8(weights: Weights, _: Path) -> Runner:
    """Weights in 8 bits, activations quantised as they come: ONNX Runtime's own recipe.

    Its AVX2 kernels overflow with all 8 bits of a weight, so one is given up (reduce_range).
    """
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # it advises a pre-processing step
    with TemporaryDirectory() as folder:
        plain, small = os.path.join(folder, "f32.onnx"), os.path.join(folder, "int8.onnx")
        Path(plain).write_bytes(to_onnx(*_parts(weights)))
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, reduce_range=True)
        run = _onnxruntime(Path(small).read_bytes())
    return Runner("ONNX Runtime int8", "dense", "features", run)


def _onnxruntime(model: bytes) -> Callable[[Floats], Floats]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda features: np.asarray(session.run(None, {"features": features[None]})[0][0])


def openvino_f32(weights: Weights, _: Path) -> Runner:
    import openvino

    compiled = openvino.Core().compile_model(
        openvino.Core().read_model(to_onnx(*_parts(weights))),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1},
    )
    request = compiled.create_infer_request()

    def run(features: Floats) -> Floats:
        return np.array(request.infer({0: features[None]})[0][0])

    return Runner("OpenVINO f32", "dense", "features", run)


def litert(_: Weights, path: Path) -> Runner:
    """The authors' file as it is, from sound, with LiteRT's XNNPACK kernels."""
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

    return Runner("LiteRT XNNPACK", "dense", "audio", run)


def torch_eager(weights: Weights, _: Path) -> Runner:
    return _torch("torch eager", weights, compiled=False)


def torch_compile(weights: Weights, _: Path) -> Runner:
    return _torch("torch compile", weights, compiled=True)


def _torch(name: str, weights: Weights, compiled: bool) -> Runner:
    import torch

    from deltakwt.train.net import Kwt

    torch.set_num_threads(1)
    net: Any = Kwt(weights.config)
    net.load({name: torch.from_numpy(tensor) for name, tensor in weights.tensors.items()})
    net.eval()
    if compiled:
        net = torch.compile(net)

    def run(features: Floats) -> Floats:
        with torch.inference_mode():
            return np.asarray(net(torch.from_numpy(features[None]))[0])

    return Runner(name, "dense", "features", run)


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
