"""An archive of a data set. The input is the tar file, which is compressed here."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.download import unpack


def read(data: bytes, folder: Path) -> None:
    """Unpack; afterwards there is the whole folder or nothing."""
    path = folder / "a.tar.gz"
    raw = data[:2] == b"\x1f\x8b"  # the input is compressed already
    path.write_bytes(data if raw else gzip.compress(data, 1))
    before = sorted(folder.iterdir())
    unpacked = folder / "unpacked"
    try:
        unpack(path, unpacked, lambda done, total: None)
    except DeltakwtError:
        assert sorted(folder.iterdir()) == before
        raise
    assert not any(entry.is_symlink() for entry in unpacked.rglob("*"))
    shutil.rmtree(unpacked)
    assert sorted(folder.iterdir()) == before
