"""Distillation from other models: layer by layer, hints, and stored posteriors (soft answers).

*Layer-wise distillation* needs a teacher of the same shape. Each half block gets the teacher's own
tokens and learns to give the teacher's next tokens: many small regressions side by side.

*Hints* come from a narrower teacher. A learned linear map takes the wide tokens of every block to
the teacher's tokens; the error guides the first part of a run from random weights.

*Soft answers* are the teachers' class probabilities for the clean clips, computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import softmax
from deltakwt.core.setting import DENSE
from deltakwt.data.recordings import Places, Recordings
from deltakwt.train.net import Kwt
from deltakwt.weights.folder import Weights, load_weights
from deltakwt.weights.registry import resolve

HINT = "hints."  # prefix of the names of the maps' tensors
BATCH = 256  # clips of a teacher's call


def layerwise_loss(
    net: Kwt, teacher: Kwt, features: Tensor, chosen: Tensor | None = None
) -> Tensor:
    """Return the mean error of all half blocks, each relative to its target's variance.

    The head's cross entropy with the teacher's answer is added.
    """
    with torch.no_grad():
        before = teacher.embed(features, chosen)  # (B, T, d)
    errors = [_relative_error(net.embed(features, chosen), before)]
    for layer in range(net.config.layers):
        with torch.no_grad():
            between = teacher.attention_block(before, layer)
            after = teacher.mlp_block(between, layer)
        errors.append(_relative_error(net.attention_block(before, layer), between))
        errors.append(_relative_error(net.mlp_block(between, layer), after))
        before = after
    with torch.no_grad():
        soft = teacher.logits(before).softmax(1)
    return torch.stack(errors).mean() + F.cross_entropy(net.logits(before), soft)


def hint_maps(wide: Config, narrow: Config, seed: int) -> dict[str, Tensor]:
    """Return one initial map (d_wide, d_narrow) per layer of the wide model."""
    if narrow.dim >= wide.dim:
        raise DeltakwtError(
            f"--hints: the model must be narrower than the one to train ({narrow.dim} is not below"
            f" {wide.dim})"
        )
    if narrow.stride != wide.stride:
        raise DeltakwtError(
            f"--hints: the model has a stride of {narrow.stride}, the one to train {wide.stride};"
            " their tokens do not match"
        )
    rng = torch.Generator().manual_seed(seed)
    return {
        f"{HINT}{layer}.weight": torch.randn(wide.dim, narrow.dim, generator=rng) / wide.dim**0.5
        for layer in range(wide.layers)
    }


def hint_loss(
    tokens: Sequence[Tensor], maps: Mapping[str, Tensor], teacher_tokens: Sequence[Tensor]
) -> Tensor:
    """Return the mean error of the mapped tokens, relative to the variance of the teacher's.

    Both sequences hold the embedding's tokens first, then those of every layer. If the teacher has
    fewer layers, the wide layers are spread evenly over them.
    """
    wide, narrow = len(tokens) - 1, len(teacher_tokens) - 1
    errors = []
    for layer in range(wide):
        matching = -(-(layer + 1) * narrow // wide)  # rounded up: the last matches the last
        mapped, target = tokens[layer + 1] @ maps[f"{HINT}{layer}.weight"], teacher_tokens[matching]
        rows = min(mapped.shape[1], target.shape[1])  # a last layer has the class token only
        errors.append(_relative_error(mapped[:, :rows], target[:, :rows]))
    return torch.stack(errors).mean()


def _relative_error(made: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(made, target) / target.var()


def load_net(name: str) -> Kwt:
    """Return a model by name or path as a network that is not trained."""
    weights = load_weights(resolve(name))
    net = Kwt(weights.config)
    net.load(as_tensors(weights.tensors))
    return net.requires_grad_(False)


def as_tensors(arrays: Mapping[str, NDArray[np.float32]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def soft_answers(
    teachers: Sequence[str],
    labels: tuple[str, ...],
    clips: Recordings,
    rows: Places,
    sharpness: float,
    home: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.float32]:
    """Return the teachers' mean probabilities (rows, labels), computed once and kept in `home`."""
    models = [load_weights(resolve(name)) for name in teachers]
    for name, weights in zip(teachers, models, strict=True):
        if weights.config.labels != labels:
            raise DeltakwtError(f"{name}: the teacher must have the labels that are to be learned")
    path = home / f"answers-{_fingerprint(models, clips, rows, sharpness)}.safetensors"
    try:
        return load_file(path)["answers"].astype(np.float32)
    except (OSError, SafetensorError, KeyError):
        answers = _computed(models, clips, rows, sharpness, progress)
    try:
        home.mkdir(parents=True, exist_ok=True)
        save_file({"answers": answers.astype(np.float16)}, path)
    except (OSError, SafetensorError) as error:
        raise DeltakwtError(f"{path}: cannot be written: {error}") from error
    return answers.astype(np.float16).astype(np.float32)


def _computed(
    models: Iterable[Weights],
    clips: Recordings,
    rows: Places,
    sharpness: float,
    progress: Callable[[int, int], None],
) -> NDArray[np.float32]:
    engines = [Engine(weights.config, weights.tensors) for weights in models]
    parts = []
    for start in range(0, len(rows), BATCH):
        sounds = clips.clips(rows[start : start + BATCH]).astype(np.float32) / 32768
        answers = [softmax(sharpness * engine.batch(sounds, DENSE).logits) for engine in engines]
        parts.append(np.mean(answers, axis=0))
        progress(min(start + BATCH, len(rows)), len(rows))
    return np.concatenate(parts).astype(np.float32)


def _fingerprint(
    models: Iterable[Weights], clips: Recordings, rows: Places, sharpness: float
) -> str:
    """Return a hash of everything that decides the answers."""
    digest = hashlib.sha256(f"{sharpness}".encode())
    for weights in models:
        for name, tensor in weights.tensors.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor).tobytes())
    digest.update(np.ascontiguousarray(rows).tobytes())
    for row in rows[:: max(1, len(rows) // 1000)]:  # the files and a sample of their sound
        digest.update(clips.files[row].encode())
        digest.update(clips.clips(np.array([row])).tobytes())
    return digest.hexdigest()[:16]
