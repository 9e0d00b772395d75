"""The weights of a model folder whose config.json is good."""

from __future__ import annotations

import json
from pathlib import Path

from deltakwt.core.config import Config
from deltakwt.weights.folder import config_document, load_weights

SMALL = Config(dim=2, heads=1, mlp=2, layers=1, labels=("_silence_", "yes"))


def read(data: bytes, folder: Path) -> None:
    """Read the weights of a very small model."""
    config = folder / "config.json"
    if not config.exists():
        config.write_text(json.dumps(config_document(SMALL, {})))
    (folder / "model.safetensors").write_bytes(data)
    weights = load_weights(folder)
    assert {name: tensor.shape for name, tensor in weights.tensors.items()} == SMALL.shapes()
