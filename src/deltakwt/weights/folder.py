"""Model folders: `model.safetensors`, `config.json`, `profiles.json`, `fixed.json`, `README.md`.

Reading checks config.json first, then the size of the weights file against the shape given there,
then the name, type and shape of every tensor in the file's header, then the values, block by block.
Only then is memory taken. `load_profiles` and `save_profiles` read and write profiles.json.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core import config as constants
from deltakwt.core.config import MAX_STRIDE, Config, frames_of
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Profile, Profiles
from deltakwt.files import open_regular, read_json, write_atomically, writing

FORMAT = 1
SCALES_FILE = "fixed.json"  # read and written by deltakwt.weights.quantize
MAX_HEADER_BYTES = 1 << 20  # of model.safetensors
BLOCK_BYTES = 1 << 20  # of weights that are checked at once
LIMITS = {"dim": 1024, "heads": 64, "mlp": 4096, "layers": 64}
MAX_LABELS = 1000
MAX_LABEL_LENGTH = 64
PROFILES_FILE = "profiles.json"
PROFILES_FORMAT = 1
MAX_PROFILES = 200

FRONT_END = {
    "sample_rate": constants.SAMPLE_RATE,
    "clip_samples": constants.CLIP_SAMPLES,
    "frame_samples": constants.FRAME_SAMPLES,
    "hop_samples": constants.HOP_SAMPLES,  # times the stride
    "fft_samples": constants.FFT_SAMPLES,
    "mel_bands": constants.MEL_BANDS,
    "mel_low_hz": constants.MEL_LOW_HZ,
    "mel_high_hz": constants.MEL_HIGH_HZ,
    "energy_floor": constants.ENERGY_FLOOR,
}


@dataclass(frozen=True)
class Weights:
    """What a model folder holds: shape, tensors (float32, named as in Config), training facts."""

    config: Config
    tensors: dict[str, NDArray[np.float32]]
    training: dict[str, Any] = field(default_factory=dict)


def load_weights(path: Path) -> Weights:
    """Return the weights of a model folder or of a `.tflite` file of the KWT authors."""
    if path.is_dir():
        return load_folder(path)
    if not path.exists():
        raise DeltakwtError(f"{path}: no such model folder or file")
    if path.suffix != ".tflite":
        raise DeltakwtError(f"{path}: a model is a folder or a .tflite file")
    from deltakwt.weights.tflite import read_tflite

    config, tensors = read_tflite(path)
    _check_finite(path, tensors)
    return Weights(config, tensors, {"source": "KWT authors' TFLite", "file": path.name})


def load_folder(folder: Path) -> Weights:
    """Return the model in `folder`. Every part of it is checked."""
    config, training = read_config(folder)
    return Weights(config, _read_tensors(folder / "model.safetensors", config), training)


def read_config(folder: Path) -> tuple[Config, dict[str, Any]]:
    """Return the shape and the training facts of the model in `folder`, without its weights."""
    path = folder / "config.json"
    if not path.exists():
        raise DeltakwtError(f"{folder}: not a model folder: it has no config.json")
    document = read_json(path)
    version = document.get("format")
    if version != FORMAT:
        raise DeltakwtError(
            f"{path}: format {version!r} is not known to this deltakwt, which reads {FORMAT}"
        )
    sizes = {name: _bounded(path, document, name, limit) for name, limit in LIMITS.items()}
    labels = check_labels(path, document.get("labels"))
    if sizes["dim"] % sizes["heads"]:
        raise DeltakwtError(f"{path}: heads must divide dim")
    sizes |= _check_front_end(path, document)
    training = document.get("training", {})
    if not isinstance(training, dict):
        raise DeltakwtError(f"{path}: training must be an object")
    return Config(labels=labels, **sizes), training


def check_labels(path: Path | str, labels: object) -> tuple[str, ...]:
    """Return the labels if they are a list of different printable names."""
    if (
        not isinstance(labels, list)
        or not 2 <= len(labels) <= MAX_LABELS
        or not all(isinstance(label, str) and label for label in labels)
        or len(set(labels)) != len(labels)
    ):
        raise DeltakwtError(f"{path}: labels must be a list of 2 to {MAX_LABELS} different names")
    for label in labels:
        if len(label) > MAX_LABEL_LENGTH or not label.isprintable():
            raise DeltakwtError(
                f"{path}: label {label[:MAX_LABEL_LENGTH]!r}: must have at most"
                f" {MAX_LABEL_LENGTH} characters and no control characters"
            )
    return tuple(labels)


def _bounded(path: Path, document: dict[str, Any], name: str, limit: int) -> int:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise DeltakwtError(f"{path}: {name} must be a whole number from 1 to {limit}")
    return value


def _check_front_end(path: Path, document: dict[str, Any]) -> dict[str, int]:
    """Return the frames and the stride; models without a stride have 1."""
    stride = _bounded(path, {"stride": 1} | document, "stride", MAX_STRIDE)
    frames = frames_of(stride)
    for name, value in {"frames": frames, "features": constants.FEATURES}.items():
        if document.get(name) != value:
            raise DeltakwtError(
                f"{path}: {name} must be {value}, the size of the front end with a stride of"
                f" {stride}"
            )
    front_end = front_end_document(stride)
    if document.get("front_end", front_end) != front_end:
        raise DeltakwtError(f"{path}: front_end differs from the only one that deltakwt has")
    return {"frames": frames, "stride": stride}


def front_end_document(stride: int) -> dict[str, Any]:
    """Return the constants of the front end, as in config.json."""
    return FRONT_END | {"hop_samples": stride * constants.HOP_SAMPLES}


def _read_tensors(path: Path, config: Config) -> dict[str, NDArray[np.float32]]:
    from safetensors import SafetensorError, safe_open

    shapes = config.shapes()
    largest = 4 * sum(math.prod(shape) for shape in shapes.values()) + MAX_HEADER_BYTES
    with open_regular(path) as opened:
        size = os.fstat(opened.fileno()).st_size
        header = int.from_bytes(opened.read(8), "little")
    if size > largest:
        raise DeltakwtError(f"{path}: {size} bytes, at most {largest} fit the shape in config.json")
    if header > MAX_HEADER_BYTES:
        raise DeltakwtError(
            f"{path}: damaged: a header of {header} bytes, at most {MAX_HEADER_BYTES} are read"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            for name, shape in shapes.items():
                if name not in names:
                    raise DeltakwtError(f"{path}: tensor {name} is missing")
                entry = file.get_slice(name)
                if tuple(entry.get_shape()) != shape or entry.get_dtype() not in ("F32", "F16"):
                    raise DeltakwtError(
                        f"{path}: tensor {name} is {entry.get_dtype()} {entry.get_shape()}, "
                        f"config.json asks for F32 or F16 {list(shape)}"
                    )
            if extra := sorted(names - set(shapes)):
                raise DeltakwtError(f"{path}: tensor {extra[0]} does not belong to a KWT")
            _check_values(path, header, shapes)
            return {
                name: np.ascontiguousarray(file.get_tensor(name), dtype=np.float32)
                for name in shapes
            }
    except (SafetensorError, OSError) as error:
        raise DeltakwtError(f"{path}: damaged: {error}") from error


def _check_values(path: Path, header: int, names: Iterable[str]) -> None:
    """Refuse NaN and infinity in a safetensors file before memory is taken for its tensors."""
    with open_regular(path) as file:
        file.seek(8)
        entries = json.loads(file.read(header))  # safetensors has accepted it
        for name in names:
            start, end = entries[name]["data_offsets"]
            kind = "<f4" if entries[name]["dtype"] == "F32" else "<f2"
            file.seek(8 + header + start)
            for at in range(start, end, BLOCK_BYTES):
                block = np.frombuffer(file.read(min(BLOCK_BYTES, end - at)), kind)
                _check_finite(path, {name: block})


def _check_finite(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise DeltakwtError(f"{path}: tensor {name} holds NaN or infinity")


def random_tensors(config: Config, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return random weights of a plausible scale, for tests that compare arithmetic."""
    dice = np.random.default_rng(seed)
    tensors = {}
    for name, shape in config.shapes().items():
        scale = 1 / np.sqrt(shape[0]) if len(shape) == 2 else 0.1
        mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        tensors[name] = dice.normal(mean, scale, shape).astype(np.float32)
    return tensors


def config_document(config: Config, training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json."""
    return {
        "format": FORMAT,
        "dim": config.dim,
        "heads": config.heads,
        "mlp": config.mlp,
        "layers": config.layers,
        "labels": list(config.labels),
        "frames": config.frames,
        "features": config.features,
        "stride": config.stride,
        "front_end": front_end_document(config.stride),
        "training": dict(training),
    }


def save_folder(
    folder: Path,
    weights: Weights,
    *,
    card: str | None = None,
    half: bool = False,
) -> None:
    """Write a model folder. Each file is written atomically, config.json last.

    A new folder that cannot be filled is removed again. `half` stores the weights as float16, which
    takes half the bytes; they are read as float32.
    `card` is the text of README.md.
    """
    from safetensors.numpy import save

    config = weights.config
    shapes = {name: tensor.shape for name, tensor in weights.tensors.items()}
    if shapes != config.shapes():
        raise ValueError("tensors do not fit the config")
    kind = np.float16 if half else np.float32
    tensors = {
        name: np.ascontiguousarray(tensor, dtype=kind) for name, tensor in weights.tensors.items()
    }
    _check_finite(folder, tensors)  # the largest float16 is 65504
    document = config_document(config, weights.training)
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCALES_FILE).unlink(missing_ok=True)  # scales of other weights
        write_atomically(folder / "model.safetensors", save(tensors))
        if card is not None:
            write_atomically(folder / "README.md", card.encode())
        write_atomically(folder / "config.json", (json.dumps(document, indent=2) + "\n").encode())
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def load_profiles(folder: Path | str) -> Profiles:
    """Return the profiles of a model folder; none if it has no profiles.json."""
    path = Path(folder) / PROFILES_FILE
    if not path.exists() and not path.is_symlink():
        return Profiles()
    document = read_json(path)
    try:
        return _profiles(document)
    except DeltakwtError as error:
        raise DeltakwtError(f"{path}: {error}") from None


def _profiles(document: dict[str, Any]) -> Profiles:
    if document.get("format") != PROFILES_FORMAT:
        raise DeltakwtError(
            f"format {document.get('format')!r}: this version reads {PROFILES_FORMAT}"
        )
    entries = document.get("profiles")
    if not isinstance(entries, dict) or len(entries) > MAX_PROFILES:
        raise DeltakwtError(f"profiles must be an object with at most {MAX_PROFILES} entries")
    profiles = {name: Profile.from_json(name, entry) for name, entry in entries.items()}
    default = document.get("default")
    if default is not None and (not isinstance(default, str) or default not in profiles):
        raise DeltakwtError(f"the default profile {default!r} is not among the profiles")
    return Profiles(profiles, default)


def save_profiles(folder: Path | str, profiles: Profiles) -> None:
    """Write profiles.json atomically."""
    path = Path(folder) / PROFILES_FILE
    document = {
        "format": PROFILES_FORMAT,
        "default": profiles.default,
        "profiles": {name: profile.to_json() for name, profile in profiles.profiles.items()},
    }
    with writing(path):
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
