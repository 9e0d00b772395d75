"""Writes TFLite files like those of the KWT authors, as far as the reader needs."""

from __future__ import annotations

import flatbuffers
import numpy as np

from deltakwt.core.config import Config

Constant = tuple[str, np.ndarray]


def write(constants: list[Constant]) -> bytes:
    """Return a TFLite file with one subgraph that holds the constants."""
    entries = [(name, values.shape, number) for number, (name, values) in enumerate(constants)]
    return write_graph(entries, [values for _, values in constants])


def write_shared(names: list[str], values: np.ndarray) -> bytes:
    """Return a TFLite file whose tensors all have the same buffer."""
    return write_graph([(name, values.shape, 0) for name in names], [values])


def write_graph(entries: list[tuple[str, tuple[int, ...], int]], data: list[np.ndarray]) -> bytes:
    """Return a TFLite file with tensors of (name, shape, number of its data)."""
    b = flatbuffers.Builder(1 << 16)
    buffers = [_table(b, 1, [])]  # number 0 is always empty
    for values in data:
        content = b.CreateByteVector(np.ascontiguousarray(values, "<f4").tobytes())
        buffers.append(_table(b, 1, [(0, "offset", content)]))
    tensors = []
    for name, sizes, number in entries:
        shape = b.CreateNumpyVector(np.array(sizes, np.int32))
        text = b.CreateString(name)
        fields = [(0, "offset", shape), (1, "int8", 0), (2, "uint32", number + 1)]
        tensors.append(_table(b, 4, [*fields, (3, "offset", text)]))
    graph = _table(b, 1, [(0, "offset", _vector(b, tensors))])
    graphs = _vector(b, [graph])
    fields = [(0, "uint32", 3), (2, "offset", graphs), (4, "offset", _vector(b, buffers))]
    b.Finish(_table(b, 5, fields), file_identifier=b"TFL3")
    return bytes(b.Output())


def _table(b: flatbuffers.Builder, size: int, fields: list[tuple[int, str, int]]) -> int:
    b.StartObject(size)
    for slot, kind, value in fields:
        if kind == "offset":
            b.PrependUOffsetTRelativeSlot(slot, value, 0)
        elif kind == "int8":
            b.PrependInt8Slot(slot, value, 0)
        else:
            b.PrependUint32Slot(slot, value, 0)
    return b.EndObject()


def _vector(b: flatbuffers.Builder, offsets: list[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()


def authors_names(config: Config, tensors: dict[str, np.ndarray]) -> list[Constant]:
    """Return our weights with the names and the layout of the authors' files."""
    root = "kws_transformer"
    last = 6 * config.layers + 1
    made: list[Constant] = [
        ("class_emb", tensors["class_token"].reshape(1, 1, -1)),
        ("pos_emb", tensors["positions"][None]),
        (f"{root}/dense/Tensordot/MatMul", tensors["embed.weight"].T),
        (f"{root}/dense/bias", tensors["embed.bias"]),
        (f"sequential_{config.layers}/dense_{last}/MatMul", tensors["head.weight"].T),
        (f"sequential_{config.layers}/dense_{last}/bias", tensors["head.bias"]),
        ("speech_features/windowing/mul/y", np.ones(480)),
    ]
    for layer in range(config.layers):
        tail = f"_{layer}" if layer else ""
        block = f"{root}/transformer_block{tail}"
        homes = ["multi_head_self_attention"] * 4 + ["sequential"] * 2
        for number, name in enumerate(("q", "k", "v", "proj", "mlp_in", "mlp_out")):
            dense = f"{block}/{homes[number]}{tail}/dense_{6 * layer + 1 + number}"
            ours = f"blocks.{layer}.{name}"
            made.append((f"{dense}/Tensordot/MatMul", tensors[f"{ours}.weight"].T))
            if number > 2:
                made.append((f"{dense}/bias", tensors[f"{ours}.bias"]))
        for number in (0, 1):
            norm = 2 * layer + number
            theirs = f"{block}/layer_normalization{f'_{norm}' if norm else ''}"
            ours = f"blocks.{layer}.norm{number + 1}"
            made.append((f"{theirs}/gamma", tensors[f"{ours}.weight"]))
            made.append((f"{theirs}/beta", tensors[f"{ours}.bias"]))
    return made
