"""Models of other projects as model folders: TFLite, torch, safetensors and ONNX files."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import open_regular
from deltakwt.weights.folder import (
    MAX_HEADER_BYTES,
    Weights,
    load_weights,
    save_folder,
    save_profiles,
)
from deltakwt.weights.mapping import Mapped, Row, map_tensors
from deltakwt.weights.registry import import_tflite
from deltakwt.weights.torch_file import MAX_FILE_BYTES, read_torch
from deltakwt.weights.torch_pickle import MAX_VALUES

TORCH = (".pt", ".pth", ".ckpt", ".bin", ".th")
SUFFIXES = (".tflite", ".safetensors", ".onnx", *TORCH)
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}  # of safetensors
MAX_CHECK_CLIPS = 1000
# Other code computes GELU with erf and LayerNorm with another epsilon; logits differ by about this.
CHECK_TOLERANCE = 0.05

ASSUMED = (
    "blocks compute LN(x + f(x)) and GELU; weights do not show it, --check does",
    "features are the MFCC of the KWT authors; with others, train the model further",
)


@dataclass
class Imported:
    """A model folder that was written, and what every tensor of the file became."""

    weights: Weights
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    difference: float | None = None  # largest, of the logits of --check or of an ONNX graph


def import_model(
    file: Path,
    folder: Path,
    *,
    heads: int | None = None,
    labels: tuple[str, ...] | None = None,
    check: Path | None = None,
) -> Imported:
    """Write a model of another project as a new model folder.

    `check` is a torch or safetensors file with `features` (n, frames, 40) and the `logits`
    (n, labels) that the other project's code computes for them: they must agree.
    """
    if file.suffix not in SUFFIXES:
        raise DeltakwtError(f"{file}: cannot be imported; give one of {', '.join(SUFFIXES)}")
    if file.suffix == ".tflite":
        if heads or labels or check:
            raise DeltakwtError(f"{file}: a .tflite file needs no --heads, --labels or --check")
        return Imported(import_tflite(file, folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeltakwtError(f"{folder}: exists already; choose another --out")
    mapped, notes = _mapped(file, heads, labels)
    for name, tensor in mapped.tensors.items():
        if not np.isfinite(tensor).all():
            raise DeltakwtError(f"{file}: tensor {name} holds NaN or infinity")
    difference = mapped.difference if check is None else _compare(mapped, check)
    facts = {"source": "imported", "file": file.name}
    weights = Weights(mapped.config, mapped.tensors, facts)
    _write(folder, weights, file)
    return Imported(weights, mapped.rows, mapped.notes + notes, difference)


def _mapped(
    file: Path, heads: int | None, labels: tuple[str, ...] | None
) -> tuple[Mapped, list[str]]:
    if file.suffix == ".onnx":
        from deltakwt.weights.onnx_file import read_onnx

        return read_onnx(file, labels), list(ASSUMED[1:])
    return map_tensors(str(file), read_tensors(file), heads, labels), list(ASSUMED)


def read_tensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a torch or safetensors file."""
    if file.suffix != ".safetensors":
        return read_torch(file)
    from safetensors import SafetensorError, safe_open

    with open_regular(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        header = int.from_bytes(opened.read(8), "little")
        if size > MAX_FILE_BYTES or header > MAX_HEADER_BYTES:
            raise DeltakwtError(f"{file}: damaged, or larger than {MAX_FILE_BYTES} bytes")
        try:
            with safe_open(file, framework="numpy"):  # it checks the header
                pass
        except (SafetensorError, OSError) as error:
            raise DeltakwtError(f"{file}: damaged: {error}") from error
        return _floats(file, opened, header)


def _floats(file: Path, opened: BinaryIO, header: int) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of floats of a safetensors file whose header was checked."""
    opened.seek(8)
    entries = json.loads(opened.read(header))
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        if entry["dtype"].startswith(("BF", "F8")):
            raise DeltakwtError(f"{file}: {name} is {entry['dtype']}; save it as float32")
    floats = {name: entry for name, entry in entries.items() if entry["dtype"] in FLOATS}
    if sum(math.prod(entry["shape"]) for entry in floats.values()) > MAX_VALUES:
        raise DeltakwtError(f"{file}: tensors of more than {MAX_VALUES} values")
    tensors = {}
    for name, entry in floats.items():
        kind, offset = FLOATS[entry["dtype"]], 8 + header + entry["data_offsets"][0]
        values = np.fromfile(opened, kind, math.prod(entry["shape"]), offset=offset - opened.tell())
        tensors[name] = values.reshape(entry["shape"]).astype(np.float32, copy=False)
    return tensors


def _compare(mapped: Mapped, check: Path) -> float:
    """Return the largest difference between logits of the engine and those of the check file."""
    found = read_tensors(check)
    features, logits = found.get("features"), found.get("logits")
    labels, shape = len(mapped.config.labels), (mapped.config.frames, mapped.config.features)
    if (
        features is None
        or logits is None
        or features.shape[1:] != shape
        or logits.shape != (len(features), labels)
        or not 1 <= len(features) <= MAX_CHECK_CLIPS
    ):
        raise DeltakwtError(
            f"{check}: must hold features (n, {shape[0]}, {shape[1]}) and logits (n, {labels})"
        )
    engine = Engine(mapped.config, mapped.tensors, name=str(check))
    ours = np.array([engine.dense(row) for row in features])
    difference = float(np.abs(ours - logits).max())
    if not difference <= CHECK_TOLERANCE * max(1.0, float(np.abs(logits).max())):
        raise DeltakwtError(
            f"{check}: logits differ by up to {difference:.3g}: the code of this model computes"
            " something else than LN(x + f(x)), or has another number of heads (--heads)"
        )
    return difference


def _write(folder: Path, weights: Weights, file: Path) -> None:
    from deltakwt.core.setting import Profiles

    card = f"# {folder.name}\n\nImported from `{file.name}`.\n"
    existed = folder.exists()
    try:
        save_folder(folder, weights, card=card)
        save_profiles(folder, Profiles())
        load_weights(folder)  # what was written can be read
    except OSError as error:
        if not existed:
            shutil.rmtree(folder, ignore_errors=True)
        raise DeltakwtError(f"{folder}: cannot be written: {error.strerror}") from error
