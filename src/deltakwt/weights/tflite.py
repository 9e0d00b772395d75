"""The KWT authors' TFLite files, read without TensorFlow.

A TFLite file is a FlatBuffer: tables found through offsets. No offset is trusted: each is
checked against the file before it is followed, and every size before memory is taken.
Weights are found by the names Keras gave them (`dense_7`, `layer_normalization_2`) and by
shape, never by position.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import SIZES, Config
from deltakwt.core.errors import DeltakwtError

MAX_FILE_BYTES = 128 << 20  # KWT-3 has 23 MB
MAX_TENSORS = 20_000
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
    """A FlatBuffer table at `at`: its vtable says where each field lies, or that it is absent."""

    def __init__(self, file: memoryview, at: int) -> None:
        self.file, self.at = file, at
        self.vtable = at - _unpack("<i", file, at)
        self.vtable_bytes = _unpack("<H", file, self.vtable)

    def field(self, index: int) -> int | None:
        """Position of field `index`, None where the writer left it out."""
        slot = 4 + 2 * index
        if slot + 2 > self.vtable_bytes:
            return None
        offset = _unpack("<H", self.file, self.vtable + slot)
        return self.at + offset if offset else None

    def number(self, index: int, kind: str) -> int:
        at = self.field(index)
        return 0 if at is None else _unpack(kind, self.file, at)

    def vector(self, index: int, item_bytes: int) -> tuple[int, int]:
        """Start and length of a vector, all of which lies inside the file."""
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
    """Tensors of the first subgraph. Field numbers are those of TFLite's schema."""
    model = _Table(file, _unpack("<I", file, 0))
    buffers = [buffer.bytes(0) for buffer in model.tables(4)]
    subgraph = next(model.tables(2), None)
    if subgraph is None:
        raise _Malformed
    tensors = []
    for table in subgraph.tables(0):
        start, rank = table.vector(0, 4)
        if rank > 8:
            raise _Malformed
        shape = struct.unpack_from(f"<{rank}i", file, start)
        buffer = table.number(2, "<I")
        if buffer >= len(buffers):
            raise _Malformed
        name = bytes(table.bytes(3)[:1000]).decode(errors="replace")
        tensors.append(Tensor(name, shape, table.number(1, "<b"), buffers[buffer]))
    return tensors


def read_graph(path: Path) -> list[Tensor]:
    """All tensors of a TFLite file."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DeltakwtError(f"{path}: {size >> 20} MiB is too large for a KWT .tflite file")
        file = memoryview(path.read_bytes())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be read: {error.strerror}") from error
    if bytes(file[4:8]) != b"TFL3":
        raise DeltakwtError(f"{path}: not a TFLite file (no TFL3 mark)")
    try:
        return _graph(file)
    except _Malformed as error:
        raise DeltakwtError(f"{path}: damaged TFLite file; download it again") from error


def read_tflite(path: Path) -> tuple[Config, dict[str, NDArray[np.float32]]]:
    """Shape and weights of an authors' KWT-1/2/3, under our names, matrices as (in, out)."""
    matrices: dict[int, NDArray[np.float32]] = {}  # number of the dense layer -> (in, out)
    vectors: dict[str, NDArray[np.float32]] = {}
    for tensor in read_graph(path):
        key = _key(tensor)
        if key is None or tensor.type != FLOAT32 or not len(tensor.data):
            continue
        values = _values(tensor, path)
        if isinstance(key, int):
            matrices[key] = np.ascontiguousarray(values.T)
        else:
            vectors[key] = values.reshape(values.shape[-2:]) if key == "pos" else values.ravel()
    config = _config(path, matrices)
    return config, _named(path, config, matrices, vectors)


def _key(tensor: Tensor) -> int | str | None:
    """The dense layer's number for a matrix, a name for a vector, None for the rest."""
    for part in tensor.name.split(";"):  # the converter joins the names of fused operations
        if part in ("class_emb", "pos_emb"):
            return part[:-4]
        if found := re.search(r"layer_normalization(?:_(\d+))?/(beta|gamma)$", part):
            return f"norm{found[1] or 0}.{found[2]}"
        if found := re.search(r"(?:^|/)dense(?:_(\d+))?/(.+)$", part):
            number = int(found[1] or 0)
            if found[2] == "bias" and len(tensor.shape) == 1:
                return f"bias{number}"
            if "MatMul" in found[2] and len(tensor.shape) == 2:
                return number
    return None


def _values(tensor: Tensor, path: Path) -> NDArray[np.float32]:
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if min(tensor.shape, default=1) < 1 or 4 * count != len(tensor.data):
        raise DeltakwtError(f"{path}: damaged TFLite file: {tensor.name} has the wrong size")
    return np.frombuffer(tensor.data, "<f4").astype(np.float32).reshape(tensor.shape)


def _config(path: Path, matrices: dict[int, NDArray[np.float32]]) -> Config:
    """Which of the three sizes it is, by the width of a token; `_named` checks all the rest."""
    if 0 not in matrices or sorted(matrices) != list(range(len(matrices))):
        raise DeltakwtError(f"{path}: not a Keyword Transformer of the KWT authors")
    for config in SIZES.values():
        if matrices[0].shape == (config.features, config.dim):
            if len(matrices) == 6 * config.layers + 2:
                return config
            break
    raise DeltakwtError(f"{path}: not a KWT-1, KWT-2 or KWT-3")


def _named(
    path: Path,
    config: Config,
    matrices: dict[int, NDArray[np.float32]],
    vectors: dict[str, NDArray[np.float32]],
) -> dict[str, NDArray[np.float32]]:
    last = len(matrices) - 1
    matrix_names = {"embed.weight": 0, "head.weight": last}
    vector_names = {"embed.bias": "bias0", "head.bias": f"bias{last}"}
    vector_names |= {"class_token": "class", "positions": "pos"}
    for layer in range(config.layers):
        block, dense = f"blocks.{layer}.", 6 * layer + 1
        for number, name in enumerate(("q", "k", "v", "proj", "mlp_in", "mlp_out")):
            matrix_names[f"{block}{name}.weight"] = dense + number
            if number > 2:  # q, k and v have no bias
                vector_names[f"{block}{name}.bias"] = f"bias{dense + number}"
        for number in (0, 1):
            for ours, theirs in (("weight", "gamma"), ("bias", "beta")):
                vector_names[f"{block}norm{number + 1}.{ours}"] = (
                    f"norm{2 * layer + number}.{theirs}"
                )
    tensors = {}
    for name, shape in config.shapes().items():
        found = matrices[matrix_names[name]] if name in matrix_names else None
        found = vectors.get(vector_names[name]) if found is None else found
        if found is None or found.shape != shape:
            raise DeltakwtError(
                f"{path}: not a Keyword Transformer: {name} is missing or misshapen"
            )
        tensors[name] = found
    return tensors
