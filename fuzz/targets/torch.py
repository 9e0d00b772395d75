"""A file of torch.save."""

from __future__ import annotations

from pathlib import Path

from deltakwt.weights.mapping import map_tensors
from deltakwt.weights.torch_file import read_torch


def read(data: bytes, folder: Path) -> None:
    """Read the tensors, then look for a model in them."""
    path = folder / "a.pt"
    path.write_bytes(data)
    map_tensors("a.pt", read_torch(path), None, None)
