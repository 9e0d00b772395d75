"""What is exported: a model, its setting, its decision rule, and how its weights are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Setting
from deltakwt.listen.decision import Decision

Tensors = Mapping[str, NDArray[np.float32]]
KINDS = ("f32", "f16", "int8")
LARGEST_HALF = 65504.0
GROUP = 4  # columns that the microcontroller engine takes together


@dataclass(frozen=True)
class Export:
    """A model and everything that its exported form depends on."""

    name: str
    config: Config
    tensors: dict[str, NDArray[np.float32]]
    kind: str  # how weights are stored: f32, f16 or int8
    setting: Setting
    decision: Decision

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeltakwtError(f"--weights {self.kind}: must be one of {', '.join(KINDS)}")

    def check_board(self) -> None:
        """Refuse a shape that the microcontroller engine cannot run."""
        head_dim = self.config.head_dim
        if head_dim % 8 or self.config.mlp % (head_dim // 2):
            raise DeltakwtError(
                f"{self.name}: a head of {head_dim} features cannot be exported;"
                " it must be a multiple of 8, and half of it must divide the width of the MLP"
            )

    @property
    def small(self) -> bool:
        """Whether K^, V and features have 16 bits. With f32 weights this would save little."""
        return self.kind != "f32"

    def stored_tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as the exported model computes with them, after rounding."""
        d, found = self.config.dim, dict(self.tensors)
        for name, tensor in self.tensors.items():
            if name.endswith(".weight") and tensor.ndim == 2:
                found[name] = stored(tensor, self.kind)
        if self.kind == "int8":  # W_Q, W_K and W_V have one scale per row
            for layer in range(self.config.layers):
                names = [f"blocks.{layer}.{part}.weight" for part in ("q", "k", "v")]
                joined = stored(np.concatenate([self.tensors[n] for n in names], axis=1), self.kind)
                found |= {n: joined[:, i * d : (i + 1) * d] for i, n in enumerate(names)}
        return found


def quantise(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix (in, out) as int8 and one scale per row (in,), symmetric around 0."""
    largest = np.abs(matrix).max(axis=1)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def stored(matrix: NDArray[np.float32], kind: str) -> NDArray[np.float32]:
    """Return the matrix after it was stored as `kind` and read back."""
    if kind == "int8":
        levels, scales = quantise(matrix)
        return levels * scales[:, None]
    if kind == "f16":
        return half(matrix).astype(np.float32)
    return matrix


def half(matrix: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return the matrix in half precision; values beyond its range are clipped."""
    return np.clip(matrix, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def matrices(config: Config, tensors: Tensors) -> dict[str, NDArray[np.float32]]:
    """Return the matrices of the core's dk_model by name; W_Q, W_K and W_V side by side."""
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
    """Return the other tensors by their names in dk_model and dk_layer."""
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
