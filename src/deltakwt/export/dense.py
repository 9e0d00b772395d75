"""A model as one file for other runtimes: ONNX or TFLite, dense, from sound to logits."""

from __future__ import annotations

from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.export.tflite import to_tflite
from deltakwt.files import write_atomically
from deltakwt.weights.folder import Weights
from deltakwt.weights.onnx_model import OPSET, to_onnx

DESCRIPTIONS = {
    "onnx": f"ONNX opset {OPSET}, dense, sound (1, 16000) to logits",
    "tflite": "TFLite, dense, sound (1, 16000) to logits",
}


def write_dense(target: str, weights: Weights, path: Path) -> int:
    """Write a file of the kind `target` with the plain front end, and return its size in bytes."""
    if path.is_dir():
        raise DeltakwtError(f"{path}: is a folder; --target {target} writes a file")
    config, tensors = weights.config, weights.tensors
    data = to_onnx(config, tensors, sound=True) if target == "onnx" else to_tflite(config, tensors)
    try:
        write_atomically(path, data)
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from error
    return len(data)
