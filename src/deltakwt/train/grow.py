"""Widening: a wide model that begins with the function of a trained narrow one.

The first part of every token is the narrow model's token and is computed by the narrow weights
alone. The other features are new: their heads and hidden units have random weights, read the whole
token, and reach neither the first part nor the head before training. They are not copies of the
narrow features, so that training can use them for something else. (Copies stay copies: see
docs/notes/training.md.)

Only LayerNorm joins the parts, since it takes mean and variance over all features. The random
weights are scaled so that the new features have the variance of the narrow ones, layer by layer,
on one clip. The wide model then gives nearly the narrow model's answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import as_file, files

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt.audio import read_clip
from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.net import Kwt

Array = NDArray[np.float32]
PROBE = "selftest.flac"  # the clip on which variances are compared


def grow(
    narrow: Config, tensors: Mapping[str, Array], wide: Config, seed: int = 0
) -> dict[str, Array]:
    """Return weights of `wide` that begin with the function of `narrow` and have new features."""
    times = wide.dim // narrow.dim
    if (wide.dim, wide.heads, wide.mlp) != tuple(
        times * n for n in (narrow.dim, narrow.heads, narrow.mlp)
    ) or (wide.layers, wide.labels, wide.stride) != (narrow.layers, narrow.labels, narrow.stride):
        raise DeltakwtError(
            f"a model of width {narrow.dim} and {narrow.layers} layers cannot grow into width"
            f" {wide.dim} and {wide.layers}: width, heads and MLP must be the same multiple,"
            " layers, labels and stride the same"
        )
    net = Kwt(wide, seed)
    with torch.no_grad():
        for name, parameter in net.tensors.items():
            _insert(parameter, torch.from_numpy(tensors[name]), name)
        _rotate_embedding(net, narrow.dim, torch.Generator().manual_seed(seed))
        _match_variances(net, narrow.dim)
    return {name: tensor.numpy() for name, tensor in net.state().items()}


def _insert(wide: Tensor, narrow: Tensor, name: str) -> None:
    """Write the narrow tensor into the first rows and columns; no new input reaches them."""
    columns = narrow.shape[-1]
    if wide.ndim == 1:
        if "norm" in name:
            wide.fill_(0.0 if name.endswith("bias") else float(narrow.square().mean().sqrt()))
        wide[:columns] = narrow
    elif wide.shape[0] == narrow.shape[0]:
        wide[:, :columns] = narrow
    else:
        wide[:, :columns] = 0.0
        wide[: narrow.shape[0], :columns] = narrow


def _rotate_embedding(net: Kwt, width: int, rng: torch.Generator) -> None:
    """Embed the sound in the new features by random rotations of the narrow embedding."""
    for first in range(width, net.config.dim, width):
        rotation, _ = torch.linalg.qr(torch.randn(width, width, generator=rng))
        for name in ("embed.weight", "embed.bias", "positions", "class_token"):
            tensor = net.tensors[name]
            tensor[..., first : first + width] = tensor[..., :width] @ rotation


def _match_variances(net: Kwt, width: int) -> None:
    """Scale the new columns of every layer so that they vary as much as the narrow ones."""
    w = net.tensors
    x = net.embed(_probe(net.config.stride))
    for layer in range(net.config.layers):
        block = f"blocks.{layer}."
        _scale(w[block + "proj.weight"], net.attention(x, layer)[0], width)
        _scale(w[block + "norm1.weight"], net.attention_block(x, layer), width)
        x = net.attention_block(x, layer)
        _scale(w[block + "mlp_out.weight"], net.mlp(x, layer), width)
        _scale(w[block + "norm2.weight"], net.mlp_block(x, layer), width)
        x = net.mlp_block(x, layer)


def _scale(weight: Tensor, made: Tensor, width: int) -> None:
    """Multiply the new columns by the ratio of the spread of old and new results."""
    weight[..., width:] *= made[..., :width].std() / made[..., width:].std().clamp(min=1e-6)


def _probe(stride: int) -> Tensor:
    """Return the features (1, frames, 40) of the clip that comes with the package."""
    with as_file(files("deltakwt").joinpath(PROBE)) as path:
        clip = torch.from_numpy(read_clip(path))
    return mfcc(mel_energies(clip[None], stride))
