"""A Keyword Transformer as an ONNX graph, for the runtimes that read one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import LAYER_NORM_EPS, Config
from deltakwt.core.errors import MissingExtra

OPSET = 20  # the first with Gelu
IR_VERSION = 10


def to_onnx(config: Config, tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Return a dense graph from features (1, frames, 40) to logits (1, labels).

    It uses plain operators, which each runtime fuses as it can. The last layer computes all tokens.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError:
        raise MissingExtra("the benchmark", "bench") from None

    graph = _Graph(tensors)
    x = graph.embed(config)
    for layer in range(config.layers):
        x = graph.block(config, x, f"blocks.{layer}.")
    graph.head(x)
    shape_in, shape_out = [1, config.frames, config.features], [1, len(config.labels)]
    made = helper.make_graph(
        graph.nodes,
        "kwt",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, shape_in)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape_out)],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    checker.check_model(model)
    return bytes(model.SerializeToString())


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
