"""The places where tokens are delta encoded, and how large a difference must be to count there.

A threshold is absolute, one for all layers or one a layer. Zero keeps every difference, so the
result is the dense one; a site left out (None) is dense: not compared at all, counted in full.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.errors import DeltakwtError
from deltakwt.frontend import PLAIN, Steady

# The first six are the paper's, in the order of its figures; v is delta encoded for storage only.
SITES = ("x", "q", "k", "scores", "softmax", "heads", "mlp_in", "mlp_hidden")
ALL_SITES = (*SITES, "v")
PAPER_SITES = SITES[:6]
DENSE = -1.0  # a dense site in the array form

Threshold = float | tuple[float, ...] | None


@dataclass(frozen=True)
class Thresholds:
    """One threshold a site: a number, a tuple with one number a layer, or None for dense."""

    x: Threshold = None  # input of a layer
    q: Threshold = None
    k: Threshold = None
    scores: Threshold = None  # Q K^T / sqrt(head_dim)
    softmax: Threshold = None
    heads: Threshold = None  # softmax V, the heads side by side
    mlp_in: Threshold = None  # input of the MLP: beyond the paper
    mlp_hidden: Threshold = None  # output of its GELU: beyond the paper
    v: Threshold = None  # compresses V, saves no MAC

    def __post_init__(self) -> None:
        for site in ALL_SITES:
            value = getattr(self, site)
            if isinstance(value, list | np.ndarray):
                object.__setattr__(self, site, value := tuple(float(v) for v in value))
            for number in _numbers(value):
                if not isinstance(number, int | float) or not 0 <= number < math.inf:
                    raise DeltakwtError(
                        f"threshold {site} = {number!r}: must be a finite number of at least 0"
                    )

    @classmethod
    def parse(cls, text: str) -> Thresholds:
        """The paper's form, "0.2_0.2_0.2_0.05_0.001_0.05": x, q, k, scores, softmax, heads.

        Two more values are mlp_in and mlp_hidden, a ninth is v. Commas inside a value give one
        threshold a layer, "-" leaves a site dense.
        """
        parts = text.strip().split("_")
        if len(parts) not in (6, 8, 9):
            raise DeltakwtError(
                f"thresholds {text!r}: {len(parts)} values; give 6 (x_q_k_scores_softmax_heads),"
                " 8 (and mlp_in_mlp_hidden) or 9 (and v)"
            )
        return cls(**dict(zip(ALL_SITES, map(_parse_value, parts), strict=False)))

    def __str__(self) -> str:
        """The form that `parse` reads."""
        values = [getattr(self, site) for site in ALL_SITES]
        last = max((i for i, value in enumerate(values) if value is not None), default=0)
        count = next(count for count in (6, 8, 9) if count > last)
        return "_".join(
            "-" if value is None else ",".join(f"{n:g}" for n in _numbers(value))
            for value in values[:count]
        )

    def to_json(self) -> dict[str, float | list[float]]:
        """Dense sites are left out."""
        sites = ((site, getattr(self, site)) for site in ALL_SITES)
        return {
            site: list(value) if isinstance(value, tuple) else value
            for site, value in sites
            if value is not None
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Thresholds:
        unknown = set(data) - set(ALL_SITES)
        if unknown:
            raise DeltakwtError(
                f"thresholds: unknown site {min(unknown)!r}; sites are {', '.join(ALL_SITES)}"
            )
        return cls(**{site: tuple(v) if isinstance(v, list) else v for site, v in data.items()})

    def array(self, layers: int) -> NDArray[np.float32]:
        """(layers, 9) in the order of ALL_SITES, with -1 where a site is dense."""
        table = np.full((layers, len(ALL_SITES)), DENSE, np.float32)
        for column, site in enumerate(ALL_SITES):
            value = getattr(self, site)
            if isinstance(value, tuple) and len(value) != layers:
                raise DeltakwtError(
                    f"threshold {site}: {len(value)} values for a model of {layers} layers"
                )
            if value is not None:
                table[:, column] = value
        return table


def _numbers(value: Threshold) -> tuple[float, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _parse_value(text: str) -> Threshold:
    if text == "-":
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DeltakwtError(f"thresholds: {text!r} is not a number") from None
    return numbers if len(numbers) > 1 else numbers[0]


@dataclass(frozen=True)
class Profile:
    """Thresholds and the front end they were chosen with, and what was measured with both."""

    name: str
    thresholds: Thresholds
    steady: Steady = PLAIN
    measured: dict[str, Any] = field(default_factory=dict)
    command: str = ""  # that measured it

    def to_json(self) -> dict[str, Any]:
        return {
            "thresholds": self.thresholds.to_json(),
            "steady": self.steady.to_json(),
            "measured": self.measured,
            "command": self.command,
        }

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Profile:
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown or "thresholds" not in data:
            problem = f"unknown key {min(unknown)!r}" if unknown else "no thresholds"
            raise DeltakwtError(f"profile {name!r}: {problem}")
        return cls(
            name,
            Thresholds.from_json(data["thresholds"]),
            Steady.from_json(data.get("steady", {})),
            dict(data.get("measured", {})),
            str(data.get("command", "")),
        )


@dataclass(frozen=True)
class Profiles:
    """The named profiles of one model, and the one it uses unless told otherwise."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    default: str | None = None  # None: dense

    def __getitem__(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise DeltakwtError(f"profile {name!r}: this model has no such profile (has: {known})")
        return self.profiles[name]

    def with_profile(self, profile: Profile, default: bool = False) -> Profiles:
        """These profiles and one more (or one replaced)."""
        return Profiles(
            {**self.profiles, profile.name: profile}, profile.name if default else self.default
        )


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
