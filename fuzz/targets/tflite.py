"""A .tflite file."""

from __future__ import annotations

from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.tflite import read_graph, read_tflite


def read(data: bytes, folder: Path) -> None:
    """Read the graph, then the model."""
    path = folder / "a.tflite"
    path.write_bytes(data)
    try:
        tensors = read_graph(path)
    except DeltakwtError:
        tensors = []
    assert all(len(tensor.data) <= len(data) for tensor in tensors)
    read_tflite(path)
