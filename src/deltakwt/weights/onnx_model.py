"""A Keyword Transformer as an ONNX graph, for the runtimes that read one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import (
    CLIP_SAMPLES,
    ENERGY_FLOOR,
    FFT_SAMPLES,
    FRAME_SAMPLES,
    LAYER_NORM_EPS,
    Config,
)
from deltakwt.core.errors import MissingExtra
from deltakwt.core.frontend import dct_matrix, mel_matrix

OPSET = 20  # the first with Gelu
IR_VERSION = 10


def to_onnx(
    config: Config, tensors: Mapping[str, NDArray[np.float32]], *, sound: bool = False
) -> bytes:
    """Return a dense graph from features (1, frames, 40) to logits (1, labels).

    With `sound`, the plain front end is in the graph, which then begins with (1, 16000) samples
    in [-1, 1]. It uses plain operators, which each runtime fuses as it can. The last layer computes
    all tokens.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise MissingExtra("ONNX", "onnx") from None

    graph = _Graph(tensors)
    if sound:
        name, shape_in = "sound", [1, CLIP_SAMPLES]
        graph.front_end(config.hop_samples)
    else:
        name, shape_in = "features", [1, config.frames, config.features]
    x = graph.embed(config)
    for layer in range(config.layers):
        x = graph.block(config, x, f"blocks.{layer}.")
    graph.head(x)
    made = helper.make_graph(
        graph.nodes,
        "kwt",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, len(config.labels)])],
        graph.constants,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="deltakwt"
    )
    model.ir_version = IR_VERSION
    helper.set_model_props(model, {"labels": "\n".join(config.labels)})
    checker.check_model(model)
    return bytes(model.SerializeToString())


def dft_kernels() -> NDArray[np.float32]:
    """Return (2 * 257, 480): the windowed cosines and sines of one frame, as rows of a filter."""
    n = np.arange(FRAME_SAMPLES)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * n / FRAME_SAMPLES)  # periodic
    angles = 2 * np.pi * np.outer(np.arange(FFT_SAMPLES // 2 + 1), n) / FFT_SAMPLES
    return np.concatenate([hann * np.cos(angles), hann * np.sin(angles)]).astype(np.float32)


class _Graph:
    """Nodes and constants of a graph. Every method returns the name of its result."""

    def __init__(self, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        for name, tensor in tensors.items():
            self.constant(name, tensor)

    def constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def linear(self, x: str, name: str) -> str:
        product = self.node("MatMul", [x, f"{name}.weight"], f"{name}.product")
        return self.node("Add", [product, f"{name}.bias"], f"{name}.sum")

    def add_norm(self, x: str, y: str, name: str) -> str:
        total = self.node("Add", [x, y], f"{name}.in")
        inputs = [total, f"{name}.weight", f"{name}.bias"]
        attributes = {"axis": -1, "epsilon": LAYER_NORM_EPS}
        return self.node("LayerNormalization", inputs, f"{name}.out", **attributes)

    def front_end(self, hop: int) -> str:
        """Add the plain front end: sound (1, 16000) to features (1, frames, 40)."""
        self.constant("dft", dft_kernels()[:, None, :])
        self.constant("mel", mel_matrix().astype(np.float32))
        self.constant("dct", dct_matrix().astype(np.float32))
        self.constant("energy_floor", np.float32(ENERGY_FLOOR))
        axis = self.constant("channel_axis", np.array([1], np.int64))
        channel = self.node("Unsqueeze", ["sound", axis], "channel")
        spectrum = self.node("Conv", [channel, "dft"], "spectrum", strides=[hop])
        squares = self.node("Mul", [spectrum, spectrum], "squares")  # (1, 514, frames)
        self.nodes.append(self._split(squares, ["real", "imaginary"]))
        power = self.node("Add", ["real", "imaginary"], "power")
        magnitude = self.node("Sqrt", [power], "magnitude")
        frames = self.node("Transpose", [magnitude], "frames", perm=[0, 2, 1])
        energies = self.node("MatMul", [frames, "mel"], "energies")
        floored = self.node("Max", [energies, "energy_floor"], "floored")
        logs = self.node("Log", [floored], "logs")
        return self.node("MatMul", [logs, "dct"], "features")

    def _split(self, x: str, parts: list[str]) -> Any:
        from onnx import helper

        return helper.make_node("Split", [x], parts, axis=1, num_outputs=len(parts))

    def embed(self, config: Config) -> str:
        tokens = self.linear("features", "embed")
        axes = self.constant("axes", np.array([0, 1], np.int64))
        token = self.node("Unsqueeze", ["class_token", axes], "token")
        both = self.node("Concat", [token, tokens], "tokens", axis=1)
        heads = [1, config.tokens, config.heads, config.head_dim]
        self.constant("split", np.array(heads, np.int64))
        self.constant("joined", np.array([1, config.tokens, config.dim], np.int64))
        self.constant("scale", np.float32(1 / math.sqrt(config.head_dim)))
        return self.node("Add", [both, "positions"], "x")

    def block(self, config: Config, x: str, name: str) -> str:
        turns = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
        q, k, v = (self._by_head(x, name + part, turn) for part, turn in turns.items())
        scores = self.node("MatMul", [q, k], name + "scores")
        scaled = self.node("Mul", [scores, "scale"], name + "scaled")
        softmax = self.node("Softmax", [scaled], name + "softmax", axis=-1)
        heads = self.node("MatMul", [softmax, v], name + "heads")
        turned = self.node("Transpose", [heads], name + "turned", perm=[0, 2, 1, 3])
        joined = self.node("Reshape", [turned, "joined"], name + "joined")
        x = self.add_norm(x, self.linear(joined, name + "proj"), name + "norm1")
        hidden = self.linear(x, name + "mlp_in")
        gelu = self.node("Gelu", [hidden], name + "gelu", approximate="tanh")
        return self.add_norm(x, self.linear(gelu, name + "mlp_out"), name + "norm2")

    def _by_head(self, x: str, name: str, turn: list[int]) -> str:
        product = self.node("MatMul", [x, f"{name}.weight"], f"{name}.product")
        split = self.node("Reshape", [product, "split"], f"{name}.split")
        return self.node("Transpose", [split], f"{name}.turned", perm=turn)

    def head(self, x: str) -> None:
        self.constant("class_row", np.array(0, np.int64))
        token = self.node("Gather", [x, "class_row"], "class_out", axis=1)
        product = self.node("MatMul", [token, "head.weight"], "head.product")
        self.node("Add", [product, "head.bias"], "logits")
