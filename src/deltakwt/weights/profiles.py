"""Reading and writing profiles.json, the named settings of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Profile, Profiles
from deltakwt.files import read_json, write_atomically, writing

PROFILES_FILE = "profiles.json"
PROFILES_FORMAT = 1
MAX_PROFILES = 200


def load_profiles(folder: Path | str) -> Profiles:
    """Return the profiles of a model folder; none if it has no profiles.json."""
    path = Path(folder) / PROFILES_FILE
    if not path.exists() and not path.is_symlink():
        return Profiles()
    document = read_json(path)
    try:
        return _profiles(document)
    except DeltakwtError as error:
        raise DeltakwtError(f"{path}: {error}") from None


def _profiles(document: dict[str, Any]) -> Profiles:
    if document.get("format") != PROFILES_FORMAT:
        raise DeltakwtError(
            f"format {document.get('format')!r}: this version reads {PROFILES_FORMAT}"
        )
    entries = document.get("profiles")
    if not isinstance(entries, dict) or len(entries) > MAX_PROFILES:
        raise DeltakwtError(f"profiles must be an object with at most {MAX_PROFILES} entries")
    profiles = {name: Profile.from_json(name, entry) for name, entry in entries.items()}
    default = document.get("default")
    if default is not None and (not isinstance(default, str) or default not in profiles):
        raise DeltakwtError(f"the default profile {default!r} is not among the profiles")
    return Profiles(profiles, default)


def save_profiles(folder: Path | str, profiles: Profiles) -> None:
    """Write profiles.json atomically."""
    path = Path(folder) / PROFILES_FILE
    document = {
        "format": PROFILES_FORMAT,
        "default": profiles.default,
        "profiles": {name: profile.to_json() for name, profile in profiles.profiles.items()},
    }
    with writing(path):
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
