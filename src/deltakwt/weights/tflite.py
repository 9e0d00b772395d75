"""Reader of the KWT authors' TFLite files, without TensorFlow.

A TFLite file is a FlatBuffer: tables that are found through offsets. Each offset is checked against
the size of the file before it is followed, and each size before memory is taken. Weights are found
by the names that Keras gave them (`dense_7`, `layer_normalization_2`) and by shape, never by
position.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SIZES, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import read_bytes

MAX_FILE_BYTES = 32 << 20  # KWT-3 has 23 MB
MAX_TENSORS = 10_000  # KWT-3 has about 600
MAX_RANK = 8
MAX_NAME_BYTES = 1_000
FLOAT32 = 0  # TensorType in TFLite's schema


class _Malformed(Exception):
    """An offset or a length that points outside the file."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of the graph. `data` is empty unless it is a constant."""

    name: str
    shape: tuple[int, ...]
    type: int
    data: memoryview


class _Table:
    """A FlatBuffer table at offset `at`. Its vtable gives the offset of each field that it has."""

    def __init__(self, file: memoryview, at: int) -> None:
        self.file, self.at = file, at
        self.vtable = at - _unpack("<i", file, at)
        self.vtable_bytes = _unpack("<H", file, self.vtable)

    def field(self, index: int) -> int | None:
        """Return the offset of field `index`, or None if the table does not have it."""
        slot = 4 + 2 * index
        if slot + 2 > self.vtable_bytes:
            return None
        offset = _unpack("<H", self.file, self.vtable + slot)
        return self.at + offset if offset else None

    def number(self, index: int, kind: str) -> int:
        at = self.field(index)
        return 0 if at is None else _unpack(kind, self.file, at)

    def vector(self, index: int, item_bytes: int) -> tuple[int, int]:
        """Return the start and the length of a vector that lies inside the file."""
        at = self.field(index)
        if at is None:
            return 0, 0
        at += _unpack("<I", self.file, at)
        length = _unpack("<I", self.file, at)
        if at + 4 + length * item_bytes > len(self.file):
            raise _Malformed
        return at + 4, length

    def tables(self, index: int) -> Iterator[_Table]:
        start, length = self.vector(index, 4)
        if length > MAX_TENSORS:
            raise _Malformed
        for slot in range(start, start + 4 * length, 4):
            yield _Table(self.file, slot + _unpack("<I", self.file, slot))

    def bytes(self, index: int) -> memoryview:
        start, length = self.vector(index, 1)
        return self.file[start : start + length]


def _unpack(kind: str, file: memoryview, at: int) -> int:
    if at < 0 or at + struct.calcsize(kind) > len(file):
        raise _Malformed
    return int(struct.unpack_from(kind, file, at)[0])


def _graph(file: memoryview) -> list[Tensor]:
    """Return the tensors of the first subgraph. Field numbers are those of TFLite's schema."""
    model = _Table(file, _unpack("<I", file, 0))
    buffers = [buffer.bytes(0) for buffer in model.tables(4)]
    subgraph = next(model.tables(2), None)
    if subgraph is None:
        raise _Malformed
    tensors = []
    for table in subgraph.tables(0):
        start, rank = table.vector(0, 4)
        if rank > MAX_RANK:
            raise _Malformed
        shape = struct.unpack_from(f"<{rank}i", file, start)
        buffer = table.number(2, "<I")
        if buffer >= len(buffers):
            raise _Malformed
        name = bytes(table.bytes(3)[:MAX_NAME_BYTES]).decode(errors="replace")
        tensors.append(Tensor(name, shape, table.number(1, "<b"), buffers[buffer]))
    return tensors


def read_graph(path: Path) -> list[Tensor]:
    """Return all tensors of a TFLite file. Their data are views of the file, not copies."""
    file = memoryview(read_bytes(path, MAX_FILE_BYTES))
    if bytes(file[4:8]) != b"TFL3":
        raise DeltakwtError(f"{path}: not a TFLite file (no TFL3 mark)")
    try:
        return _graph(file)
    except _Malformed as error:
        raise DeltakwtError(f"{path}: damaged TFLite file; download it again") from error


def read_tflite(path: Path) -> tuple[Config, dict[str, NDArray[np.float32]]]:
    """Return the shape and the weights of a KWT-1, KWT-2 or KWT-3 of the KWT authors.

    Matrices are (in, out), and names are those of `Config.shapes`. Weights are copied only after
    all of them are known to be there with the right shape and size.
    """
    found: dict[str, Tensor] = {}
    for tensor in read_graph(path):
        key = _key(tensor)
        if key is not None and tensor.type == FLOAT32 and len(tensor.data):
            found[key] = tensor
    config = _config(path, found)
    keys = _keys(config)
    for name, shape in config.shapes().items():
        _check(path, name, shape, found.get(keys[name]))
    return config, {
        name: _values(found[keys[name]], shape) for name, shape in config.shapes().items()
    }


def _key(tensor: Tensor) -> str | None:
    """Return what a tensor is, such as "dense7", "bias7" or "norm2.gamma"; None for the rest."""
    for part in tensor.name.split(";"):  # the converter joins the names of fused operations
        if part in ("class_emb", "pos_emb"):
            return part
        if found := re.search(r"layer_normalization(?:_(\d{1,3}))?/(beta|gamma)$", part):
            return f"norm{int(found[1] or 0)}.{found[2]}"
        if found := re.search(r"(?:^|/)dense(?:_(\d{1,3}))?/(.+)$", part):
            number = int(found[1] or 0)
            if found[2] == "bias" and len(tensor.shape) == 1:
                return f"bias{number}"
            if "MatMul" in found[2] and len(tensor.shape) == 2:
                return f"dense{number}"
    return None


def _config(path: Path, found: dict[str, Tensor]) -> Config:
    """Return which of the three sizes it is, by the width of a token. `_check` does the rest."""
    numbers = sorted(int(key.removeprefix("dense")) for key in found if key.startswith("dense"))
    if not numbers or numbers != list(range(len(numbers))):
        raise DeltakwtError(f"{path}: not a Keyword Transformer of the KWT authors")
    for config in SIZES.values():
        if found["dense0"].shape == (config.dim, config.features):
            if len(numbers) == 6 * config.layers + 2:
                return config
            break
    raise DeltakwtError(f"{path}: not a KWT-1, KWT-2 or KWT-3")


def _keys(config: Config) -> dict[str, str]:
    """Return the key of every weight of the model, by its name in `Config.shapes`."""
    last = 6 * config.layers + 1
    keys = {"embed.weight": "dense0", "embed.bias": "bias0"}
    keys |= {"head.weight": f"dense{last}", "head.bias": f"bias{last}"}
    keys |= {"class_token": "class_emb", "positions": "pos_emb"}
    for layer in range(config.layers):
        block, dense = f"blocks.{layer}.", 6 * layer + 1
        for number, name in enumerate(("q", "k", "v", "proj", "mlp_in", "mlp_out")):
            keys[f"{block}{name}.weight"] = f"dense{dense + number}"
            keys[f"{block}{name}.bias"] = f"bias{dense + number}"  # q, k and v have none
        for number in (0, 1):
            for ours, theirs in (("weight", "gamma"), ("bias", "beta")):
                keys[f"{block}norm{number + 1}.{ours}"] = f"norm{2 * layer + number}.{theirs}"
    return keys


def _check(path: Path, name: str, shape: tuple[int, ...], tensor: Tensor | None) -> None:
    """Refuse a weight that is missing or does not have the shape of the model."""
    if tensor is None or not _fits(tensor.shape, shape, name.endswith(".weight")):
        raise DeltakwtError(f"{path}: not a Keyword Transformer: {name} is missing or misshapen")
    if 4 * math.prod(shape) != len(tensor.data):
        raise DeltakwtError(f"{path}: damaged TFLite file: {name} has the wrong size")


def _fits(stored: tuple[int, ...], shape: tuple[int, ...], is_matrix: bool) -> bool:
    if is_matrix and len(shape) == 2:
        return stored == shape[::-1]  # TFLite stores (out, in)
    # Python's integers have no fixed width, so this product cannot wrap around.
    positive = min(stored, default=1) > 0
    return positive and math.prod(stored) == math.prod(shape) and stored[-1:] == shape[-1:]


def _values(tensor: Tensor, shape: tuple[int, ...]) -> NDArray[np.float32]:
    values = np.frombuffer(tensor.data, "<f4")
    if tensor.shape == shape[::-1] and len(shape) == 2:
        values = values.reshape(tensor.shape).T
    return np.ascontiguousarray(values.reshape(shape), np.float32)
