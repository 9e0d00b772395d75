"""The pickle in a file of `torch.save`, followed opcode by opcode without calling anything.

Values are numbers, text, names of classes and functions, containers, and tensors whose numbers are
still in the file. Everything else is an opaque value.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_OPCODES = 400_000  # many times what a checkpoint of KWT-3 needs
MAX_RANK = 8
MAX_VALUES = 12 << 20  # in all tensors together; a KWT-3 has 5.4 million

KINDS = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "<u1",
}


class Malformed(Exception):
    """The archive or its pickle is not what torch.save writes."""


@dataclass(frozen=True)
class _Name:
    """A class or a function that the pickle names. It is compared, never imported."""

    text: str


class _Opaque:
    """An object of a class that is not known here."""


@dataclass(frozen=True)
class Storage:
    kind: str  # a key of KINDS
    member: str  # file in the archive
    count: int


@dataclass(frozen=True)
class LazyTensor:
    """A tensor whose numbers are still in the file."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in values


class PickleReader:
    """Runs the opcodes of a pickle on values that are only numbers, text, names and containers."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, pickle: bytes) -> Any:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if number > MAX_OPCODES:
                raise Malformed(f"more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return self.stack.pop()
            self._step(opcode.name, argument)
        raise Malformed("the pickle has no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _TUPLES:
            self._join(_TUPLES[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name not in ("PROTO", "FRAME"):
            step = getattr(self, f"_{name.lower()}", None)
            if step is None:
                raise Malformed(f"opcode {name} is not one that torch.save writes for weights")
            step(argument)

    def _join(self, count: int) -> None:
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) != count:
            raise Malformed("a tuple of missing values")
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def _since_mark(self) -> list[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def _mark(self, _: object) -> None:
        self.marks.append(len(self.stack))

    def _tuple(self, _: object) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _global(self, argument: str) -> None:
        self.stack.append(_Name(argument.replace(" ", ".")))

    def _stack_global(self, _: object) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(_Name(f"{module}.{name}"))

    def _setitem(self, _: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def _setitems(self, _: object) -> None:
        self._set(self._since_mark())

    def _set(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(target, dict) and isinstance(key, str | int):
                target[key] = value

    def _append(self, _: object) -> None:
        self.stack.pop()  # lists hold no weights: what is in them is dropped

    def _appends(self, _: object) -> None:
        self._since_mark()

    _additems = _appends

    def _build(self, _: object) -> None:
        self.stack.pop()  # attributes of an object, such as _metadata of a state dict

    def _newobj(self, _: object) -> None:
        self.stack.pop()
        self.stack.pop()
        self.stack.append(_Opaque())

    def _binpersid(self, _: object) -> None:
        mark, kind, key, _, count = self.stack.pop()
        if mark != "storage" or not isinstance(kind, _Name) or not isinstance(key, str):
            raise Malformed("a reference to something that is not a storage")
        name = kind.text.rpartition(".")[2]
        if name not in KINDS or not isinstance(count, int) or not 0 <= count <= MAX_VALUES:
            self.stack.append(_Opaque())  # complex or quantised: never the weights of a KWT
            return
        self.stack.append(Storage(name, f"{self.root}data/{key}", count))

    def _reduce(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        name = function.text if isinstance(function, _Name) else ""
        if name == "collections.OrderedDict" and arguments == ():
            self.stack.append({})
        elif name == "torch._utils._rebuild_tensor_v2":
            self.stack.append(_tensor(*arguments[:4]))
        elif name == "torch._utils._rebuild_parameter":
            self.stack.append(arguments[0])
        else:
            self.stack.append(_Opaque())


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_TUPLE": tuple,
}
_LITERALS = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _tensor(storage: object, offset: int, shape: object, strides: object) -> Any:
    """Return a tensor after its place was checked against its storage."""
    if not isinstance(storage, Storage):
        return _Opaque()
    for values in (shape, strides):
        if not isinstance(values, tuple) or len(values) > MAX_RANK:
            raise Malformed("a tensor without a shape")
        if not all(isinstance(value, int) and 0 <= value < 1 << 40 for value in values):
            raise Malformed("a tensor with a size that is not a number")
    assert isinstance(shape, tuple)
    assert isinstance(strides, tuple)
    if len(shape) != len(strides) or not isinstance(offset, int) or offset < 0:
        raise Malformed("a tensor whose strides do not fit its shape")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.count:
        raise Malformed("a tensor that reaches beyond its storage")
    return LazyTensor(storage, offset, shape, strides)
