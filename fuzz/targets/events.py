"""A file with one JSON object per line, such as saved events and review answers."""

from __future__ import annotations

from pathlib import Path

from deltakwt.files import read_json_lines


def read(data: bytes, folder: Path) -> None:
    """Read every line."""
    path = folder / "events.jsonl"
    path.write_bytes(data)
    for number, line in read_json_lines(path, 1 << 20):
        assert number > 0
        assert isinstance(line, dict)
