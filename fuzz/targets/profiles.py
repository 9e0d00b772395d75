"""The profiles.json of a model folder."""

from __future__ import annotations

from pathlib import Path

from deltakwt.core.errors import DeltakwtError
from deltakwt.weights.folder import load_profiles, save_profiles


def read(data: bytes, folder: Path) -> None:
    """Read profiles; those that are good are the same after writing and reading them again."""
    (folder / "profiles.json").write_bytes(data)
    profiles = load_profiles(folder)
    save_profiles(folder, profiles)
    assert load_profiles(folder) == profiles
    for profile in profiles.profiles.values():
        str(profile.setting)
        if profile.setting.thresholds is not None:
            try:
                profile.setting.thresholds.array(12)
            except DeltakwtError:
                continue  # values for another number of layers
