"""Named profiles with what was measured, written where the model finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltakwt.core.setting import Profile, Profiles
from deltakwt.tune.confirm import Choice
from deltakwt.weights.profiles import load_profiles, save_profiles

DEFAULT = "lossless"


def profile_of(choice: Choice, facts: dict[str, Any], command: str) -> Profile:
    """`facts`: what the figures are figures of (model, data, mix, seed)."""
    return Profile(
        choice.name,
        choice.point.thresholds,
        choice.point.front_end,
        {**choice.to_json(), **facts},
        command,
    )


def write_profiles(folder: Path, profiles: list[Profile]) -> Profiles:
    """Add them to the folder's profiles; `lossless` becomes the default."""
    known = load_profiles(folder)
    for profile in profiles:
        known = known.with_profile(profile, default=profile.name == DEFAULT)
    save_profiles(folder, known)
    return known
