"""Scales of the fixed-point engine: made from clips, stored as fixed.json in a model folder.

fixed.json holds the exponents of `core.fixed_weights.Scales` and a checksum of the weights that
they were made for, so that scales of other weights are refused. The checksum is that of the
tensors, not of a file: the authors' .tflite file and the folder imported from it share their
scales.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_arithmetic import HIGHEST
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import PEAKS, Scales
from deltakwt.core.setting import DENSE, PLAIN, Profiles, Setting
from deltakwt.files import read_json, write_atomically, writing
from deltakwt.weights.folder import SCALES_FILE, Weights, load_folder, load_profiles

MAX_SCALES_BYTES = 1 << 16  # 64 layers of ten exponents take 5 KB
LEAST_CLIPS = 20

Sounds = NDArray[np.float32]  # (n, 16000)


@dataclass(frozen=True)
class Quantized:
    """The scales of a model, and how they did on the clips that they were made from."""

    scales: Scales
    clips: int
    # Limit of 16 bits over the largest value, per layer and tensor of `PEAKS`; infinite
    # where a tensor does not exist. The smallest over all clips and settings.
    headroom: NDArray[np.float64]  # (layers + 1, 11)
    same: dict[str, float]  # setting -> share of clips with the answer of the float engine


def checksum(tensors: Mapping[str, NDArray[np.float32]]) -> str:
    """Return a checksum of the weights, independent of the file that they are in."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name], np.dtype("<f4"))
        digest.update(f"{name} {tensor.shape};".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def load_scales(folder: Path, weights: Weights) -> Scales | None:
    """Return the scales in a folder; None if it has no fixed.json. Those of other weights raise."""
    path = folder / SCALES_FILE
    if not path.exists() and not path.is_symlink():
        return None
    document = read_json(path, MAX_SCALES_BYTES)
    try:
        scales = Scales.from_json(document, weights.config)
    except DeltakwtError as error:
        raise DeltakwtError(f"{folder}: {error}") from None
    if document.get("weights") != checksum(weights.tensors):
        raise DeltakwtError(
            f"{path}: was made for other weights; make it again with: deltakwt quantize"
        )
    return scales


def save_scales(folder: Path, weights: Weights, quantized: Quantized) -> Path:
    """Write fixed.json atomically, and return its path."""
    path = folder / SCALES_FILE
    document = quantized.scales.to_json() | {
        "weights": checksum(weights.tensors),
        "clips": quantized.clips,
    }
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    with writing(path):
        write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return path


def quantize(weights: Weights, profiles: Profiles, sounds: Sounds) -> Quantized:
    """Choose scales from sounds (n, 16000), and run both engines on them.

    Each clip goes through one of the front ends of the profiles, in turn. Raises `DeltakwtError`,
    with the layer and the tensor, if a range does not fit 16 bits.
    """
    from deltakwt.core.fixed_scales import calibrate  # imported here: loading does not need it

    if len(sounds) < LEAST_CLIPS:
        raise DeltakwtError(f"{len(sounds)} clips: scales need at least {LEAST_CLIPS}")
    engine = Engine(weights.config, weights.tensors)
    settings = [DENSE, *(profile.setting for profile in profiles.profiles.values())]
    front_ends = list(dict.fromkeys((PLAIN, *(setting.front_end for setting in settings))))
    features = {
        front_end: np.stack([engine.features(sound, front_end) for sound in sounds])
        for front_end in front_ends
    }
    turns = [clips[i :: len(front_ends)] for i, clips in enumerate(features.values())]
    scales = calibrate(weights.config, weights.tensors, np.concatenate(turns))
    fixed = FixedEngine(weights.config, weights.tensors, scales)
    peaks = np.zeros((weights.config.layers + 1, len(PEAKS)), np.int64)
    same = {}
    for setting in settings:
        clips = features[setting.front_end]
        run = fixed.batch(clips, setting)
        _check_saturation(run.peaks, setting)
        peaks = np.maximum(peaks, run.peaks.max(axis=0))
        answers = engine.batch(clips, setting).logits.argmax(axis=1)
        same[str(setting)] = float((run.logits.argmax(axis=1) == answers).mean())
    with np.errstate(divide="ignore"):
        return Quantized(scales, len(sounds), HIGHEST / peaks, same)


def quantize_folder(folder: Path, sounds: Sounds) -> Quantized:
    """Make the scales of a model folder from sounds (n, 16000), and store them in it."""
    weights = load_folder(folder)
    found = quantize(weights, load_profiles(folder), sounds)
    save_scales(folder, weights, found)
    return found


def _check_saturation(peaks: NDArray[np.int32], setting: Setting) -> None:
    """Refuse scales with which a tensor reaches the limit of 16 bits; peaks (n, layers + 1, 11)."""
    found = np.argwhere((peaks >= HIGHEST).any(axis=0))
    if len(found):
        layer, tensor = map(int, found[0])
        clips = int((peaks[:, layer, tensor] >= HIGHEST).sum())
        raise DeltakwtError(
            f"layer {layer}, {PEAKS[tensor]}: reaches the limit of 16 bits on {clips} of"
            f" {len(peaks)} clips with setting {setting}; use the float engine for this model"
        )
