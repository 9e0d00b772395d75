"""A manifest: the list of clips of an evaluation."""

from __future__ import annotations

from pathlib import Path

from deltakwt.data.speech_commands import load_manifest


def read(data: bytes, folder: Path) -> None:
    """Read a manifest; no path in it may lead out of the data folder."""
    (folder / "manifest.json").write_bytes(data)
    manifest = load_manifest(folder / "manifest.json", folder)
    for clip in manifest.clips:
        assert clip.path is None or (folder / clip.path).resolve().is_relative_to(folder.resolve())
    manifest.save(folder / "again.json")
    assert load_manifest(folder / "again.json", folder) == manifest
