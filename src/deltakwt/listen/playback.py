"""Play a saved sound with whatever this machine has for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PLAYERS = (
    ["pw-play"],
    ["paplay"],
    ["aplay", "-q"],
    ["afplay"],
    ["play", "-q"],
    ["ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"],
)


def player() -> list[str] | None:
    """The command that plays a file, if there is one."""
    return next((command for command in PLAYERS if shutil.which(command[0])), None)


def play(path: Path, limit: float = 10.0) -> bool:
    """Whether it could be played."""
    command = player()
    if command is None:
        return False
    try:
        done = subprocess.run(
            [*command, str(path)], stdin=subprocess.DEVNULL, capture_output=True, timeout=limit
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
