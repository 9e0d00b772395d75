"""The operators of ONNX exports of a KWT, in NumPy, with every size bounded before it is computed.

Only what such exports hold is here. Constant inputs of the graph are numbers of the file; the
operators that could make large results out of small files (Expand, ConstantOfShape, Gather,
products) check the size of their result first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Attributes = Mapping[str, Any]
MAX_RESULT = 1 << 22  # values of one result: KWT-3 has 76,032 in its MLP
_ERF = np.vectorize(math.erf, otypes=[np.float64])


class Unsupported(Exception):
    """An operator, or a use of one, that no export of a KWT has."""


def _check(*sizes: int) -> None:
    if math.prod(sizes) > MAX_RESULT:
        raise Unsupported(f"a result of more than {MAX_RESULT} values")


def _ints(array: Array) -> list[int]:
    return [int(value) for value in np.asarray(array).reshape(-1)]


def _axes(inputs: Sequence[Array], attributes: Attributes) -> tuple[int, ...] | None:
    """Return the axes, which are an attribute in old opsets and an input in new ones."""
    if len(inputs) > 1:
        return tuple(_ints(inputs[1]))
    return tuple(attributes["axes"]) if "axes" in attributes else None


def _elementwise(function: Callable[..., Array]) -> Callable[..., list[Array]]:
    def run(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
        _check(*np.broadcast_shapes(*(x.shape for x in inputs)))
        return [np.asarray(function(*inputs))]

    return run


def _divide(a: Array, b: Array) -> Array:
    return a // b if a.dtype.kind == b.dtype.kind == "i" else a / b


def _matmul(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    a, b = inputs
    if min(a.ndim, b.ndim) < 2:
        raise Unsupported("MatMul of a vector")
    _check(*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return [a @ b]


def _gemm(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    a, b = inputs[:2]
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    _check(a.shape[0], b.shape[1])
    if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        raise Unsupported("Gemm with factors")
    return [a @ b + (inputs[2] if len(inputs) > 2 else 0)]


def _conv(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    """Only the projection of single frames: the kernel covers all features and one frame."""
    x, kernel = inputs[:2]
    space = tuple(n - k + 1 for n, k in zip(x.shape[2:], kernel.shape[2:], strict=True))
    spans = x.shape[1] == kernel.shape[1] and sum(n > 1 for n in space) == 1 and min(space) > 0
    if x.shape[0] != 1 or not spans or any(attributes.get("pads", ())):
        raise Unsupported("a convolution over several frames")
    time = 2 + next(axis for axis, n in enumerate(space) if n > 1)
    if x.shape[time] != space[time - 2]:
        raise Unsupported("a convolution over several frames")
    rows = np.moveaxis(x[0], time - 1, 0).reshape(x.shape[time], -1)
    made = (rows @ kernel.reshape(len(kernel), -1).T).T  # (out, frames)
    if len(inputs) > 2:
        made = made + inputs[2][:, None]
    return [made.reshape(1, len(kernel), *space)]


def _reshape(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, wanted = inputs[0], _ints(inputs[1])
    keep = not attributes.get("allowzero")
    shape = [x.shape[i] if n == 0 and keep else n for i, n in enumerate(wanted)]
    return [x.reshape(shape)]


def _expand(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(_ints(inputs[1])))
    _check(*shape)
    return [np.broadcast_to(inputs[0], shape).copy()]


def _constant_of_shape(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    shape = _ints(inputs[0])
    _check(*shape)
    value = attributes.get("value", np.zeros(1, np.float32))
    return [np.full(shape, value.reshape(-1)[0])]


def _gather(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, indices, axis = inputs[0], inputs[1], attributes.get("axis", 0)
    _check(x.size, max(indices.size, 1))
    return [np.take(x, indices.astype(np.int64), axis=axis)]


def _split(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, axis = inputs[0], attributes.get("axis", 0)
    sizes = _ints(inputs[1]) if len(inputs) > 1 else list(attributes.get("split", ()))
    if sizes:
        return list(np.split(x, np.cumsum(sizes)[:-1], axis=axis))
    return list(np.array_split(x, attributes.get("num_outputs", 2), axis=axis))


def _slice(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, starts, ends = inputs[0], _ints(inputs[1]), _ints(inputs[2])
    axes = _ints(inputs[3]) if len(inputs) > 3 else range(len(starts))
    steps = _ints(inputs[4]) if len(inputs) > 4 else [1] * len(starts)
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return [x[tuple(cut)]]


def _squeeze(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    return [np.squeeze(inputs[0], _axes(inputs, attributes))]


def _unsqueeze(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    return [np.expand_dims(inputs[0], _axes(inputs, attributes) or (0,))]


def _mean(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    keep = bool(attributes.get("keepdims", 1))
    return [np.mean(inputs[0], axis=_axes(inputs, attributes), keepdims=keep)]


def _softmax(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, axis = inputs[0], attributes.get("axis", -1)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return [powers / powers.sum(axis=axis, keepdims=True)]


def _layer_norm(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x, scale = inputs[:2]
    if attributes.get("axis", -1) not in (-1, x.ndim - 1):
        raise Unsupported("LayerNormalization over several axes")
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    unit = centred / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    return [unit * scale + (inputs[2] if len(inputs) > 2 else 0)]


def _gelu(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    x = inputs[0]
    if attributes.get("approximate", b"none") in (b"tanh", "tanh"):
        gate = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        gate = _ERF(x / math.sqrt(2))
    return [0.5 * x * (1 + gate)]


def _cast(inputs: Sequence[Array], attributes: Attributes) -> list[Array]:
    kinds = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float32, 11: np.float64}
    if attributes.get("to") not in kinds:
        raise Unsupported(f"Cast to type {attributes.get('to')}")
    return [inputs[0].astype(kinds[attributes["to"]])]


Operator = Callable[[Sequence[Array], Attributes], list[Array]]
OPERATORS: dict[str, Operator] = {
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _elementwise(_divide),
    "Mod": _elementwise(np.mod),
    "Pow": _elementwise(np.power),
    "Equal": _elementwise(np.equal),
    "Where": _elementwise(np.where),
    "Sqrt": _elementwise(np.sqrt),
    "Reciprocal": _elementwise(lambda x: 1 / x),
    "Erf": _elementwise(_ERF),
    "Tanh": _elementwise(np.tanh),
    "Sigmoid": _elementwise(lambda x: 1 / (1 + np.exp(-x))),
    "Identity": lambda inputs, attributes: [inputs[0]],
    "Dropout": lambda inputs, attributes: [inputs[0]],
    "Shape": lambda inputs, attributes: [np.array(inputs[0].shape, np.int64)],
    "Transpose": lambda inputs, attributes: [np.transpose(inputs[0], attributes.get("perm"))],
    "Concat": lambda inputs, attributes: [np.concatenate(inputs, axis=attributes["axis"])],
    "Flatten": lambda inputs, attributes: [inputs[0].reshape(len(inputs[0]), -1)],
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "Split": _split,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "ReduceMean": _mean,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "Gelu": _gelu,
    "Cast": _cast,
}
