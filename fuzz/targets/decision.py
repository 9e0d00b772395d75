"""The decision settings in a config.json."""

from __future__ import annotations

from pathlib import Path

from deltakwt.files import read_json
from deltakwt.listen.decision import Decision


def read(data: bytes, folder: Path) -> None:
    """Read decision settings; those that are good are the same after writing and reading them."""
    path = folder / "decision.json"
    path.write_bytes(data)
    decision = Decision.from_json(read_json(path))
    assert Decision.from_json(decision.to_json()) == decision
