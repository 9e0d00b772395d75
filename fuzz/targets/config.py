"""The config.json of a model folder, with the decision settings in it."""

from __future__ import annotations

from pathlib import Path

from deltakwt.weights.folder import config_document, read_config


def read(data: bytes, folder: Path) -> None:
    """Read the shape of a model, and write it again."""
    (folder / "config.json").write_bytes(data)
    config, training = read_config(folder)
    assert sum(len(shape) for shape in config.shapes().values()) > 0
    config_document(config, training)
