"""A dense model as one file for other runtimes, ONNX or TFLite, from sound to logits.

Both have the plain front end. `weights/onnx_model.py` makes the ONNX file. The TFLite file is built
here from TFLite's schema, which comes with LiteRT; TensorFlow is not needed. Its operators are
those of the ONNX file, with LayerNorm in its parts, because TFLite has no operator for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import (
    CLIP_SAMPLES,
    ENERGY_FLOOR,
    FRAME_SAMPLES,
    LAYER_NORM_EPS,
    Config,
)
from deltakwt.core.errors import MissingExtra
from deltakwt.core.frontend import dct_matrix, mel_matrix
from deltakwt.export.model import write_file
from deltakwt.weights.folder import Weights
from deltakwt.weights.onnx_model import OPSET, dft_kernels, to_onnx

DESCRIPTIONS = {
    "onnx": f"ONNX opset {OPSET}, dense, sound (1, 16000) to logits",
    "tflite": "TFLite, dense, sound (1, 16000) to logits",
}
SCHEMA_VERSION = 3  # of TFLite
Tensors = Mapping[str, NDArray[np.float32]]


def write_dense(target: str, weights: Weights, path: Path) -> int:
    """Write a file of the kind `target` and return its size in bytes."""
    config, tensors = weights.config, weights.tensors
    data = to_onnx(config, tensors, sound=True) if target == "onnx" else to_tflite(config, tensors)
    return write_file(path, data, target)


def to_tflite(config: Config, tensors: Tensors) -> bytes:
    """Return a TFLite file from sound (1, 16000) in [-1, 1] to logits (1, labels)."""
    try:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema
    except ImportError:
        raise MissingExtra("TFLite", "tflite") from None

    graph = _Graph(schema, tensors)
    sound = graph.tensor("sound", (1, CLIP_SAMPLES))
    x = graph.embed(config, graph.front_end(config, sound))
    for layer in range(config.layers):
        x = graph.block(config, x, f"blocks.{layer}.")
    logits = graph.head(config, x)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(graph.model(sound, logits).Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


class _Graph:
    """Tensors and operators. Methods take and return indices of tensors."""

    def __init__(self, schema: Any, tensors: Tensors) -> None:
        self.schema, self.weights = schema, tensors
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.buffers: list[Any] = [schema.BufferT()]  # number 0 is empty, by definition
        self.codes: dict[str, int] = {}

    def model(self, sound: int, logits: int) -> Any:
        """Return the finished model."""
        graph = self.schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = "kwt", self.tensors, self.operators
        graph.inputs, graph.outputs = [sound], [logits]
        model = self.schema.ModelT()
        model.version, model.description = SCHEMA_VERSION, "deltakwt"
        model.subgraphs, model.buffers = [graph], self.buffers
        model.operatorCodes = [self._code(name) for name in self.codes]
        return model

    def _code(self, name: str) -> Any:
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 2 if name in ("GELU", "BATCH_MATMUL") else 1
        return code

    def tensor(self, name: str, shape: tuple[int, ...], data: NDArray[Any] | None = None) -> int:
        """Add a tensor: a constant if it has data, otherwise the result of an operator."""
        made = self.schema.TensorT()
        made.name, made.shape, made.buffer = name, list(shape), 0
        made.type = self.schema.TensorType.FLOAT32
        if data is not None:
            if data.dtype == np.int32:
                made.type = self.schema.TensorType.INT32
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, name: str, values: Any) -> int:
        data = np.asarray(values)
        data = data.astype(np.int32 if data.dtype.kind == "i" else np.float32)
        return self.tensor(name, data.shape, data)

    def add(
        self,
        operator: str,
        inputs: list[int],
        shape: tuple[int, ...],
        kind: str = "",
        **values: Any,
    ) -> int:
        """Add an operator with options of the schema's type `kind`, and return its result."""
        made = self.schema.OperatorT()
        made.opcodeIndex = self.codes.setdefault(operator, len(self.codes))
        output = self.tensor(f"{operator.lower()}_{len(self.operators)}", shape)
        made.inputs, made.outputs = inputs, [output]
        if kind:
            options = getattr(self.schema, f"{kind}OptionsT")()
            for name, value in values.items():
                setattr(options, name, value)
            made.builtinOptions = options
            made.builtinOptionsType = getattr(self.schema.BuiltinOptions, f"{kind}Options")
        self.operators.append(made)
        return output

    def shape(self, x: int) -> tuple[int, ...]:
        return tuple(self.tensors[x].shape)

    def binary(self, operator: str, x: int, y: int) -> int:
        shape = np.broadcast_shapes(self.shape(x), self.shape(y))
        kind = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "MAXIMUM": "MaximumMinimum"}[operator]
        return self.add(operator, [x, y], shape, kind)

    def reshape(self, x: int, shape: tuple[int, ...]) -> int:
        wanted = self.constant("shape", np.array(shape))
        return self.add("RESHAPE", [x, wanted], shape, "Reshape", newShape=list(shape))

    def product(self, x: int, name: str, matrix: NDArray[Any], bias: NDArray[Any] | None) -> int:
        """Return x (n, in) times a matrix (in, out), plus the bias."""
        inputs = [x, self.constant(name, matrix.T)]
        inputs.append(-1 if bias is None else self.constant(f"{name}.bias", bias))
        shape = (self.shape(x)[0], matrix.shape[1])
        return self.add("FULLY_CONNECTED", inputs, shape, "FullyConnected")

    def linear(self, x: int, name: str) -> int:
        return self.product(
            x, name, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        )

    def front_end(self, config: Config, sound: int) -> int:
        """Return features (frames, 40)."""
        signal = self.reshape(sound, (1, 1, CLIP_SAMPLES, 1))
        parts = []
        for name, kernel in zip(("cosine", "sine"), np.split(dft_kernels(), 2), strict=True):
            bins = len(kernel)
            weights = self.constant(name, kernel.reshape(bins, 1, FRAME_SAMPLES, 1))
            part = self.add(
                "CONV_2D",
                [signal, weights, self.constant(f"{name}.bias", np.zeros(bins, np.float32))],
                (1, 1, config.frames, bins),
                "Conv2D",
                padding=self.schema.Padding.VALID,
                strideW=config.hop_samples,
                strideH=1,
                dilationWFactor=1,
                dilationHFactor=1,
            )
            parts.append(self.binary("MUL", part, part))
        power = self.binary("ADD", *parts)
        magnitude = self.add("SQRT", [power], self.shape(power))
        rows = self.reshape(magnitude, self.shape(magnitude)[2:])
        energies = self.product(rows, "mel", mel_matrix(), None)
        floored = self.binary("MAXIMUM", energies, self.constant("floor", np.float32(ENERGY_FLOOR)))
        logs = self.add("LOG", [floored], self.shape(floored))
        return self.product(logs, "dct", dct_matrix(), None)

    def embed(self, config: Config, features: int) -> int:
        tokens = self.linear(features, "embed")
        token = self.constant("class_token", self.weights["class_token"][None])
        shape = (config.tokens, config.dim)
        both = self.add("CONCATENATION", [token, tokens], shape, "Concatenation", axis=0)
        return self.binary("ADD", both, self.constant("positions", self.weights["positions"]))

    def block(self, config: Config, x: int, name: str) -> int:
        q, k, v = (self._by_head(config, self.linear(x, name + part)) for part in "qkv")
        heads, tokens = config.heads, config.tokens
        square = (heads, tokens, tokens)
        scores = self.add("BATCH_MATMUL", [q, k], square, "BatchMatMul", adjY=True)
        scale = self.constant("scale", np.float32(1 / math.sqrt(config.head_dim)))
        scaled = self.binary("MUL", scores, scale)
        softmax = self.add("SOFTMAX", [scaled], square, "Softmax", beta=1.0)
        mixed = self.add("BATCH_MATMUL", [softmax, v], self.shape(v), "BatchMatMul")
        joined = self.reshape(self._turned(mixed), (tokens, config.dim))
        x = self._norm(self.binary("ADD", x, self.linear(joined, name + "proj")), name + "norm1")
        hidden = self.linear(x, name + "mlp_in")
        gelu = self.add("GELU", [hidden], self.shape(hidden), "Gelu", approximate=True)
        return self._norm(
            self.binary("ADD", x, self.linear(gelu, name + "mlp_out")), name + "norm2"
        )

    def _by_head(self, config: Config, x: int) -> int:
        return self._turned(self.reshape(x, (config.tokens, config.heads, config.head_dim)))

    def _turned(self, x: int) -> int:
        a, b, c = self.shape(x)
        return self.add(
            "TRANSPOSE", [x, self.constant("turn", np.array([1, 0, 2]))], (b, a, c), "Transpose"
        )

    def _mean(self, x: int) -> int:
        shape = (*self.shape(x)[:-1], 1)
        axis = self.constant("axis", np.array([-1]))
        return self.add("MEAN", [x, axis], shape, "Reducer", keepDims=True)

    def _norm(self, x: int, name: str) -> int:
        centred = self.binary("SUB", x, self._mean(x))
        variance = self._mean(self.binary("MUL", centred, centred))
        sum_ = self.binary("ADD", variance, self.constant("eps", np.float32(LAYER_NORM_EPS)))
        inverse = self.add("RSQRT", [sum_], self.shape(sum_))
        unit = self.binary("MUL", centred, inverse)
        scaled = self.binary("MUL", unit, self.constant(name, self.weights[f"{name}.weight"]))
        return self.binary("ADD", scaled, self.constant(name, self.weights[f"{name}.bias"]))

    def head(self, config: Config, x: int) -> int:
        begin, size = np.array([0, 0]), np.array([1, config.dim])
        inputs = [x, self.constant("begin", begin), self.constant("size", size)]
        logits = self.linear(self.add("SLICE", inputs, (1, config.dim), "Slice"), "head")
        self.tensors[logits].name = "logits"
        return logits
