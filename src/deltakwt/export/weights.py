"""A model's weights as C constants: float32, float16, or int8 with one scale a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.export.arrays import define

Tensors = Mapping[str, NDArray[np.float32]]
KINDS = ("f32", "f16", "int8")
C_TYPES = {"f32": "DK_F32", "f16": "DK_F16", "int8": "DK_INT8"}
LARGEST_HALF = 65504.0
GROUP = 4  # columns that the engine takes together


def quantise(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """(in, out) -> int8 and one scale a row (in,): symmetric, by the row's largest value."""
    largest = np.abs(matrix).max(axis=1)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def stored(matrix: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    """The matrix as it is after having been stored: what the exported model computes with."""
    if kind == "int8":
        levels, scales = quantise(matrix)
        return levels * scales[:, None]
    if kind == "f16":
        return _half(matrix).astype(np.float32)
    return matrix


def _half(matrix: NDArray[np.float32]) -> NDArray[np.float16]:
    return np.clip(matrix, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def matrices(config: Config, tensors: Tensors) -> dict[str, NDArray[np.float32]]:
    """The matrices of the core's dk_model by name, W_Q, W_K and W_V side by side."""
    head = np.pad(tensors["head.weight"], ((0, 0), (0, -len(config.labels) % GROUP)))
    found = {"embed": tensors["embed.weight"], "head": head}
    for layer in range(config.layers):
        block = f"blocks.{layer}."
        parts = [tensors[f"{block}{name}.weight"] for name in ("q", "k", "v")]
        found[f"qkv{layer}"] = np.concatenate(parts, axis=1)
        for name in ("proj", "mlp_in", "mlp_out"):
            found[f"{name}{layer}"] = tensors[f"{block}{name}.weight"]
    return found


BLOCK_VECTORS = (
    "proj_bias",
    "norm1",
    "norm1_bias",
    "mlp_in_bias",
    "mlp_out_bias",
    "norm2",
    "norm2_bias",
)


def vectors(config: Config, tensors: Tensors) -> dict[str, NDArray[np.float32]]:
    """Everything that is not a matrix of a product, by the names of dk_model and dk_layer."""
    found = {
        "embed_bias": tensors["embed.bias"],
        "class_token": tensors["class_token"],
        "positions": tensors["positions"],
        "head_bias": tensors["head.bias"],
    }
    for layer in range(config.layers):
        for name in BLOCK_VECTORS:
            ours = name.removesuffix("_bias")
            part = "bias" if name.endswith("_bias") else "weight"
            found[f"{name}{layer}"] = tensors[f"blocks.{layer}.{ours}.{part}"]
    return found


def weights_source(config: Config, tensors: Tensors, kind: str) -> str:
    """weights.c: the arrays, and the dk_model that points to them."""
    parts = ['/* The weights of the model. */\n#include "engine.h"\n']
    parts += [_matrix(name, matrix, kind) for name, matrix in matrices(config, tensors).items()]
    parts += [define(name, vector) for name, vector in vectors(config, tensors).items()]
    layers = ",\n".join(_layer(config, layer, kind) for layer in range(config.layers))
    parts.append(f"static const dk_layer layers[DK_LAYERS] = {{\n{layers},\n}};\n")
    sizes = (config.dim, config.heads, config.mlp, config.layers, len(config.labels))
    shape = ", ".join(map(str, (*sizes, config.frames, config.features)))
    embed = _reference("embed", (config.features, config.dim), kind)
    head = _reference("head", (config.dim, -(-len(config.labels) // GROUP) * GROUP), kind)
    parts.append(
        "const dk_model dk_flash_model = {\n"
        f"    {{{shape}}},\n    NULL,\n    layers,\n    {embed},\n    {head},\n"
        "    embed_bias,\n    class_token,\n    positions,\n    head_bias,\n};\n"
    )
    return "\n".join(parts)


def _matrix(name: str, matrix: NDArray[np.float32], kind: str) -> str:
    if kind == "int8":
        levels, scales = quantise(matrix)
        return define(name, levels) + define(f"{name}_scales", scales)
    data: NDArray[Any] = _half(matrix).view(np.uint16) if kind == "f16" else matrix
    return define(name, data)


def _reference(name: str, shape: tuple[int, int], kind: str) -> str:
    scales = f"{name}_scales" if kind == "int8" else "NULL"
    rows, cols = shape
    return f"{{{name}, {scales}, {rows}, {cols}, {cols}, {C_TYPES[kind]}}}"


def _layer(config: Config, layer: int, kind: str) -> str:
    d, m = config.dim, config.mlp
    shapes = {"qkv": (d, 3 * d), "proj": (d, d), "mlp_in": (d, m), "mlp_out": (m, d)}
    members = [_reference(f"{name}{layer}", shape, kind) for name, shape in shapes.items()]
    members += [f"{name}{layer}" for name in BLOCK_VECTORS]
    return "    {\n        " + ",\n        ".join(members) + ",\n    }"
