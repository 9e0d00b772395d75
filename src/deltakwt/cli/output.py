"""The folder that a command writes into, which no other run may use at the same time."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from deltakwt.core.errors import DeltakwtError

_claims = ExitStack()


def claim_folder(folder: Path) -> None:
    """Create the folder of `--out` and keep other runs out of it until the command ends."""
    from deltakwt.locks import locked

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"--out {folder}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):  # before any time is spent
        raise DeltakwtError(f"--out {folder}: cannot be written: read-only, or not permitted")
    _claims.enter_context(locked(folder))


def release_folders() -> None:
    """Let other runs use the folders again."""
    _claims.close()
