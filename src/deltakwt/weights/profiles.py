"""Reading and writing profiles.json."""

from __future__ import annotations

import json
from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import Profile, Profiles

PROFILES_FILE = "profiles.json"
PROFILES_FORMAT = 1


def load_profiles(folder: Path | str) -> Profiles:
    """The profiles of a model folder; none if it has no profiles.json."""
    path = Path(folder) / PROFILES_FILE
    if not path.exists():
        return Profiles()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != PROFILES_FORMAT:
            raise DeltakwtError(f"format {data['format']!r}; this version reads {PROFILES_FORMAT}")
        profiles = {name: Profile.from_json(name, p) for name, p in data["profiles"].items()}
        default = data.get("default")
        if default is not None and default not in profiles:
            raise DeltakwtError(f"the default profile {default!r} is not in it")
    except DeltakwtError as error:
        raise DeltakwtError(f"{path}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DeltakwtError(f"{path}: is not a profiles file (unreadable or malformed)") from None
    return Profiles(profiles, default)


def save_profiles(folder: Path | str, profiles: Profiles) -> None:
    """Write profiles.json whole or not at all."""
    path = Path(folder) / PROFILES_FILE
    document = {
        "format": PROFILES_FORMAT,
        "default": profiles.default,
        "profiles": {name: profile.to_json() for name, profile in profiles.profiles.items()},
    }
    partial = path.with_suffix(".json.part")
    try:
        partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written ({error.strerror})") from None
