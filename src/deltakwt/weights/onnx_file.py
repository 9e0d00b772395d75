"""The weights of a KWT in an ONNX export, found by what the graph computes with them.

Exports have no names for most weights. The graph is run once, on random features, operator by
operator: every product with a constant is a layer, two products around a softmax are an attention,
and so on. At the end the logits of the graph must be those of the engine with these weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import FEATURES, STRIDES
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.files import read_bytes
from deltakwt.weights.mapping import Mapped, map_tensors
from deltakwt.weights.onnx_run import OPERATORS, Unsupported

MAX_FILE_BYTES = 24 << 20  # a KWT-3 has 21 MB; reading needs twice the file size in memory
MAX_NODES = 20_000
TOLERANCE = 0.05  # of the largest logit: GELU with erf and LayerNorm with 1e-5 differ by less

Array = NDArray[Any]
# Operators that only move values: a result belongs to the layer that its input belongs to.
MOVES = (
    *("Reshape", "Transpose", "Split", "Slice", "Gather", "Squeeze", "Unsqueeze", "Identity"),
    *("Flatten", "Cast", "Dropout"),
)


@dataclass
class _Layer:
    weight: Array  # (out, in), as torch has it
    bias: Array | None = None


@dataclass
class _Trace:
    """What was seen while the graph ran. Layers and norms are in the order of their use."""

    layers: list[_Layer] = field(default_factory=list)
    norms: list[list[Array]] = field(default_factory=list)  # scale and bias
    attentions: list[list[int]] = field(default_factory=list)  # layers of Q, K and V
    heads: int = 0
    token: Array | None = None
    positions: Array | None = None


def read_onnx(path: Path, labels: tuple[str, ...] | None) -> Mapped:
    """Return the KWT in an ONNX export whose input is features (1, frames, 40)."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("reading ONNX", "onnx") from None

    content = read_bytes(path, MAX_FILE_BYTES)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own class, whose module differs by version
        raise DeltakwtError(f"{path}: not an ONNX file, or damaged") from error
    del content  # the weights are in memory twice at most
    try:
        runner = _Runner(model.graph)
        shape = (runner.frames, FEATURES)
        features = np.random.default_rng(0).normal(0, 3, shape).astype(np.float32)
        logits = runner.run(features)
        tensors = _tensors(runner.trace)
    except Unsupported as error:
        raise DeltakwtError(f"{path}: not an export of a KWT from features: {error}") from error
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError, RuntimeError) as error:
        raise DeltakwtError(f"{path}: its graph cannot be run: {str(error)[:200]}") from error
    mapped = map_tensors(str(path), tensors, runner.trace.heads or None, labels)
    engine = Engine(mapped.config, mapped.tensors, name=str(path))
    ours = engine.dense(features)
    difference = float(np.abs(ours - logits.reshape(-1)).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(logits).max())):
        raise DeltakwtError(
            f"{path}: its graph gives other logits than a KWT with its weights (they differ by up"
            f" to {difference:.3g}): it does not compute LN(x + f(x)) with GELU"
        )
    mapped.difference = difference
    return mapped


class _Runner:
    """Runs a graph on one input, and notes which constants it computes with."""

    def __init__(self, graph: Any) -> None:
        if len(graph.node) > MAX_NODES:
            raise Unsupported(f"more than {MAX_NODES} nodes")
        self.graph, self.trace = graph, _Trace()
        self.values: dict[str, Array] = {t.name: _array(t) for t in graph.initializer}
        self.constant = set(self.values)
        self.layer: dict[str, int] = {}  # of a value: the layer that it came from
        self.fresh: set[str] = set()  # results of a layer that may still get a bias
        self.scaled: dict[str, int] = {}  # results of a norm that may still get a bias
        self.scores: dict[str, tuple[int, int]] = {}  # layers of Q and K
        self.weights: dict[str, tuple[int, int]] = {}  # the same, after the softmax

        inputs = [entry for entry in graph.input if entry.name not in self.values]
        if len(inputs) != 1 or not graph.output:
            raise Unsupported(f"{len(inputs)} inputs, expected the features only")
        self.input = inputs[0].name
        self.shape = [int(d.dim_value) or 1 for d in inputs[0].type.tensor_type.shape.dim]
        self.frames = _frames(self.shape)

    def run(self, features: Array) -> Array:
        is_turned = self.shape.index(FEATURES) < self.shape.index(self.frames)
        self.values[self.input] = (features.T if is_turned else features).reshape(self.shape)
        for node in self.graph.node:
            self._step(node)
        logits = self.values[self.graph.output[0].name]
        if not np.isfinite(logits).all():
            raise Unsupported("its logits are not finite")
        return logits

    def _step(self, node: Any) -> None:
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if node.op_type == "Constant":
            self.values[node.output[0]] = np.asarray(attributes[node.attribute[0].name])
            self.constant.add(node.output[0])
            return
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
            raise Unsupported(f"operator {node.op_type[:40]}")
        names = [name for name in node.input if name]
        inputs = [self.values[name] for name in names]
        with np.errstate(all="ignore"):
            results = OPERATORS[node.op_type](inputs, attributes)
        for name, result in zip(node.output, results, strict=False):
            self.values[name] = result
        # The size of a value depends on the export, not on the sound.
        if node.op_type == "Shape" or all(name in self.constant for name in names):
            self.constant.update(node.output)
        else:
            self._note(node.op_type, names, list(node.output), attributes)

    def _note(
        self, operator: str, names: list[str], outputs: list[str], attributes: dict[str, Any]
    ) -> None:
        """Recognise what an operator is in a KWT."""
        fixed = [name for name in names if name in self.constant]
        moving = [name for name in names if name not in self.constant]
        out = outputs[0]
        if operator in ("MatMul", "Gemm", "Conv") and len(names) > 1 and names[1] in self.constant:
            self._note_layer(operator, names, out, attributes)
        elif operator == "MatMul" and len(moving) == 2:
            self._note_attention(moving, out)
        elif operator == "LayerNormalization":
            self.trace.norms.append([self.values[name] for name in names[1:]])
        elif operator == "Softmax" and moving[0] in self.scores:
            self.weights[out] = self.scores[moving[0]]
            self.trace.heads = int(self.values[out].shape[-3]) if self.values[out].ndim > 2 else 1
        elif operator == "Concat" and len(fixed) == 1:
            self.trace.token = self.values[fixed[0]].reshape(1, 1, -1)
        elif operator in ("Add", "Mul", "Div") and len(fixed) == 1:
            self._note_constant(operator, moving[0], self.values[fixed[0]], out)
        elif operator in MOVES and moving[0] in self.layer:
            self.layer |= dict.fromkeys(outputs, self.layer[moving[0]])
            self.fresh |= set(outputs) if moving[0] in self.fresh else set()

    def _note_layer(
        self, operator: str, names: list[str], out: str, attributes: dict[str, Any]
    ) -> None:
        matrix = self.values[names[1]]
        if operator == "Conv":
            weight = matrix.reshape(len(matrix), -1)
        else:
            turned = operator == "Gemm" and attributes.get("transB")
            weight = matrix if turned else np.swapaxes(matrix, -1, -2)
        layer = _Layer(weight.reshape(weight.shape[-2:]))
        if len(names) > 2:
            layer.bias = self.values[names[2]].reshape(-1)
        else:
            self.fresh.add(out)
        self.layer[out] = len(self.trace.layers)
        self.trace.layers.append(layer)

    def _note_attention(self, moving: Sequence[str], out: str) -> None:
        left, right = moving
        if left in self.weights and right in self.layer:
            self.trace.attentions.append([*self.weights[left], self.layer[right]])
        elif left in self.layer and right in self.layer:
            self.scores[out] = self.layer[left], self.layer[right]

    def _note_constant(self, operator: str, x: str, value: Array, out: str) -> None:
        """A constant is a bias, the positions, the scale of a norm, or a factor of the scores."""
        result = self.values[out]
        if x in self.scores:
            self.scores[out] = self.scores[x]
        elif operator == "Add" and x in self.fresh and value.size == result.shape[-1]:
            self.trace.layers[self.layer[x]].bias = value.reshape(-1)
            self.layer[out] = self.layer[x]
        elif operator == "Add" and x in self.scaled:
            self.trace.norms[self.scaled[x]].append(value.reshape(-1))
        elif operator == "Add" and value.shape[-2:] == result.shape[-2:] and value.ndim > 1:
            self.trace.positions = value
        elif operator == "Mul" and value.size == result.shape[-1] > 1:
            self.scaled[out] = len(self.trace.norms)
            self.trace.norms.append([value.reshape(-1)])
        elif value.size == 1 and x in self.layer:  # Q or K that is scaled before the product
            self.layer[out] = self.layer[x]


def _array(tensor: Any) -> Array:
    """Return the numbers of an initializer, which must be in the file itself."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unsupported("its weights are in another file; export with external_data=False")
    array: Array = numpy_helper.to_array(tensor)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _attribute(attribute: Any) -> Any:
    from onnx import AttributeProto, helper

    if attribute.type == AttributeProto.TENSOR:
        return _array(attribute.t)
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        raise Unsupported("a graph in a graph")
    return helper.get_attribute_value(attribute)


def _frames(shape: list[int]) -> int:
    """Return the frames of a graph with this input; unknown sizes are 1."""
    accepted = [{FEATURES, frames} for frames in STRIDES]
    if len(shape) > 2 and shape[0] > 1 and set(shape[-2:]) in accepted:
        raise Unsupported(f"it takes {shape[0]} clips at once; export it with one, or any number")
    sizes = [n for n in shape if n != 1]
    if len(sizes) != 2 or set(sizes) not in accepted:
        most, *fewer = STRIDES
        raise Unsupported(
            f"its input has the shape {shape}, expected {most} frames of {FEATURES} features, or"
            f" {' or '.join(map(str, fewer))} frames with a stride"
        )
    return sum(sizes) - FEATURES


def _tensors(trace: _Trace) -> dict[str, NDArray[np.float32]]:
    """Return the weights under names from which `map_tensors` finds their roles."""
    taken = {layer for attention in trace.attentions for layer in attention}
    others = [layer for number, layer in enumerate(trace.layers) if number not in taken]
    blocks = len(trace.attentions)
    if not blocks or trace.token is None or trace.positions is None or len(others) < 2:
        raise Unsupported("no class token, positions or attention were found")
    per_block = (len(others) - 2) // blocks
    found: dict[str, Array | None] = {"class_token": trace.token, "positions": trace.positions}
    _put(found, "embed", others[0])
    _put(found, "head", others[-1])
    parts = ("attn.proj", "mlp.0", "mlp.1")[-per_block:] if 2 <= per_block <= 3 else ()
    if per_block * blocks + 2 != len(others) or not parts:
        raise Unsupported(f"{len(others)} products in {blocks} blocks, besides queries to values")
    for block, attention in enumerate(trace.attentions):
        name = f"blocks.{block}."
        if len(set(attention)) == 1:
            _put(found, f"{name}attn.qkv", trace.layers[attention[0]])
        else:
            for letter, number in zip("qkv", attention, strict=True):
                _put(found, f"{name}attn.{letter}", trace.layers[number])
        for number, part in enumerate(parts):
            _put(found, name + part, others[1 + block * per_block + number])
    for number, values in enumerate(trace.norms):
        block, which = divmod(number, 2)
        name = f"blocks.{block}.norm{which + 1}" if block < blocks else f"norm_{number}"
        found |= {f"{name}.weight": values[0], f"{name}.bias": values[1] if values[1:] else None}
    return {name: np.asarray(t, np.float32) for name, t in found.items() if t is not None}


def _put(found: dict[str, Array | None], name: str, layer: _Layer) -> None:
    found[f"{name}.weight"], found[f"{name}.bias"] = layer.weight, layer.bias
