"""How a model is run: the thresholds of its delta sites and the setting of its front end.

A *site* is a place in the network where tokens are delta encoded. A *threshold* is the smallest
difference that is kept at a site; it is absolute, one value for all layers or one value per layer.
Zero keeps every difference, so the result equals the dense one. `None` leaves a site dense: it is
not delta encoded, and all of its MACs are counted.

A `Setting` joins thresholds and front end, because thresholds are chosen for one front end and
cost more or lose more with another. A `Profile` is a named setting with what was measured for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError

# The first six are the paper's, in the order of its figures. v is encoded for storage only.
SITES = ("x", "q", "k", "scores", "softmax", "heads", "mlp_in", "mlp_hidden")
ALL_SITES = (*SITES, "v")
PAPER_SITES = SITES[:6]
DENSE_SITE = -1.0  # a dense site in the array form
LARGEST = float(np.finfo(np.float32).max)  # the engine computes in float32
MAX_NAME_LENGTH = 100  # of a profile

Threshold = float | tuple[float, ...] | None


@dataclass(frozen=True)
class Thresholds:
    """One threshold per site: a number, a tuple with one number per layer, or None for dense."""

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
            object.__setattr__(self, site, _checked(site, getattr(self, site)))

    @classmethod
    def parse(cls, text: str) -> Thresholds:
        """Read the paper's form, "0.2_0.2_0.2_0.05_0.001_0.05": x, q, k, scores, softmax, heads.

        Two more values are mlp_in and mlp_hidden, and a ninth is v. A value with commas gives one
        threshold per layer. "-" leaves a site dense.
        """
        parts = _text(text, "thresholds").strip().split("_")
        if len(parts) not in (6, 8, 9):
            raise DeltakwtError(
                f"thresholds {text[:80]!r}: {len(parts)} values; give 6"
                " (x_q_k_scores_softmax_heads), 8 (and mlp_in_mlp_hidden) or 9 (and v)"
            )
        return cls(**dict(zip(ALL_SITES, map(_parse_value, parts), strict=False)))

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        values = [getattr(self, site) for site in ALL_SITES]
        last = max((i for i, value in enumerate(values) if value is not None), default=0)
        count = next(count for count in (6, 8, 9) if count > last)
        return "_".join(
            "-" if value is None else ",".join(f"{n:g}" for n in _numbers(value))
            for value in values[:count]
        )

    def to_json(self) -> dict[str, float | list[float]]:
        """Return the thresholds by site, without the dense sites."""
        sites = ((site, getattr(self, site)) for site in ALL_SITES)
        return {
            site: list(value) if isinstance(value, tuple) else value
            for site, value in sites
            if value is not None
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Thresholds:
        """Read what `to_json` returns."""
        if not isinstance(data, Mapping):
            raise DeltakwtError("thresholds: must be an object")
        unknown = set(data) - set(ALL_SITES)
        if unknown:
            raise DeltakwtError(
                f"thresholds: unknown site {min(unknown)!r}; sites are {', '.join(ALL_SITES)}"
            )
        return cls(**{site: tuple(v) if isinstance(v, list) else v for site, v in data.items()})

    def array(self, layers: int) -> NDArray[np.float32]:
        """Return (layers, 9) in the order of ALL_SITES, with -1 where a site is dense."""
        table = np.full((layers, len(ALL_SITES)), DENSE_SITE, np.float32)
        for column, site in enumerate(ALL_SITES):
            value = getattr(self, site)
            if isinstance(value, tuple) and len(value) != layers:
                raise DeltakwtError(
                    f"threshold {site}: {len(value)} values for a model of {layers} layers"
                )
            if value is not None:
                table[:, column] = value
        return table


def _checked(site: str, value: object) -> Threshold:
    """Return a threshold as a float, a tuple of floats, or None."""
    if value is None:
        return None
    many = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    numbers: list[Any] = list(value) if many else [value]  # type: ignore[call-overload]
    for number in numbers:
        if not _is_number(number) or not 0 <= number <= LARGEST:
            raise DeltakwtError(
                f"threshold {site} = {str(number)[:80]}: must be a finite number from 0 to"
                f" {LARGEST:.2g}"
            )
    return tuple(map(float, numbers)) if many else float(numbers[0])


def _numbers(value: Threshold) -> tuple[float, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise DeltakwtError(f"{what}: {type(value).__name__} is not text")
    return value


def _parse_value(text: str) -> Threshold:
    if text == "-":
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise DeltakwtError(f"thresholds: {text[:80]!r} is not a number") from None
    return numbers if len(numbers) > 1 else numbers[0]


# The thresholds of the paper's tables, and the same with deltas in the MLP as well.
PAPER_THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05")
WHOLE_THRESHOLDS = replace(PAPER_THRESHOLDS, mlp_in=0.3, mlp_hidden=0.1)


@dataclass(frozen=True)
class FrontEndSetting:
    """How the mel energies are stabilised before the DCT. The default is plain, as in the paper.

    In a real room the logarithm of a quiet mel band jumps from frame to frame, so that every token
    differs from the one before it. Smoothing over time and a floor slightly above the background
    of each band remove most of these jumps without retraining.
    """

    smooth: bool = False  # average energies over time with weights (1, 2, 1)/4, before the log
    floor: float = 0.0  # 0 is off; else each band is kept above `floor` times its own quantile
    quantile: float = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.smooth, bool):
            raise DeltakwtError(f"front end smooth {self.smooth!r}: must be True or False")
        if not _is_number(self.floor) or not 0 <= self.floor <= LARGEST:
            raise DeltakwtError(f"front end floor {self.floor!r}: must be 0 (off) or positive")
        if not _is_number(self.quantile) or not 0 <= self.quantile <= 1:
            raise DeltakwtError(f"front end quantile {self.quantile!r}: must be from 0 to 1")
        object.__setattr__(self, "floor", float(self.floor))
        object.__setattr__(self, "quantile", float(self.quantile))

    @classmethod
    def parse(cls, text: str) -> FrontEndSetting:
        """Read "plain", "smooth", "2" (floor), "smooth_2" or "smooth_2_0.2" (with quantile)."""
        parts = _text(text, "front end").strip().split("_")
        if parts == ["plain"]:
            return PLAIN
        smooth = parts[0] == "smooth"
        try:
            numbers = [float(part) for part in parts[smooth:]]
        except ValueError:
            numbers = []
        if len(numbers) != len(parts) - smooth or len(numbers) > 2:
            raise DeltakwtError(
                f"front end {text[:80]!r}: give plain, smooth, a floor, or smooth_FLOOR[_QUANTILE]"
            )
        return cls(smooth, *numbers)

    def __str__(self) -> str:
        """Return the form that `parse` reads."""
        numbers = (self.floor, self.quantile) if self.floor else ()
        parts = ["smooth"] * self.smooth + [f"{number:g}" for number in numbers]
        return "_".join(parts) or "plain"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FrontEndSetting:
        """Read what `to_json` returns. A key that is missing gets its default."""
        if not isinstance(data, Mapping):
            raise DeltakwtError("front_end: must be an object")
        if unknown := set(data) - {"smooth", "floor", "quantile"}:
            raise DeltakwtError(f"front_end: unknown key {min(unknown)!r}")
        return cls(**data)


PLAIN = FrontEndSetting()


@dataclass(frozen=True)
class Setting:
    """Thresholds and front end: everything that decides how a model is run.

    Without thresholds the model runs dense and counts nothing. `name` is for people: two settings
    are equal if they run the model in the same way.
    """

    thresholds: Thresholds | None = None
    front_end: FrontEndSetting = PLAIN
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.thresholds, Thresholds | None):
            raise DeltakwtError(f"setting: thresholds {self.thresholds!r}: give Thresholds or None")
        if not isinstance(self.front_end, FrontEndSetting):
            raise DeltakwtError(f"setting: front end {self.front_end!r}: give a FrontEndSetting")

    def __str__(self) -> str:
        """Return the name, or else the thresholds and the front end in the form that is read."""
        if self.name:
            return self.name
        text = "dense" if self.thresholds is None else str(self.thresholds)
        return text if self.front_end == PLAIN else f"{text} ({self.front_end})"

    def to_json(self) -> dict[str, Any]:
        """Return both parts; `thresholds` is null for a dense run."""
        return {
            "thresholds": None if self.thresholds is None else self.thresholds.to_json(),
            "front_end": self.front_end.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str = "") -> Setting:
        """Read what `to_json` returns."""
        thresholds = data.get("thresholds")
        return cls(
            None if thresholds is None else Thresholds.from_json(thresholds),
            FrontEndSetting.from_json(data.get("front_end", {})),
            name,
        )


DENSE = Setting(name="dense")

# What every function that takes a setting accepts: a setting, thresholds on the plain front end,
# the name of a profile, or "dense".
SettingLike = Setting | Thresholds | str


@dataclass(frozen=True)
class Profile:
    """A named setting, what was measured with it, and the command that measured it."""

    name: str
    setting: Setting
    measured: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**self.setting.to_json(), "measured": self.measured, "command": self.command}

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Profile:
        """Read what `to_json` returns."""
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise DeltakwtError(
                f"profile {name[:MAX_NAME_LENGTH]!r}: a name has 1 to {MAX_NAME_LENGTH} printable"
                " characters"
            )
        if not isinstance(data, Mapping) or not isinstance(data.get("measured", {}), Mapping):
            raise DeltakwtError(f"profile {name!r}: must be an object, and `measured` one too")
        unknown = set(data) - {"thresholds", "front_end", "measured", "command"}
        if unknown or "thresholds" not in data:
            problem = f"unknown key {min(unknown)!r}" if unknown else "no thresholds"
            raise DeltakwtError(f"profile {name!r}: {problem}")
        return cls(
            name,
            Setting.from_json(data, name),
            dict(data.get("measured", {})),
            str(data.get("command", "")),
        )


@dataclass(frozen=True)
class Profiles:
    """The named profiles of one model, and the one that it uses by default."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    default: str | None = None  # None: dense

    def __getitem__(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise DeltakwtError(f"profile {name!r}: this model has no such profile (has: {known})")
        return self.profiles[name]

    def setting(self, wanted: SettingLike | None) -> Setting:
        """Return the setting that `wanted` stands for; None stands for the default profile."""
        if isinstance(wanted, Setting):
            return wanted
        if isinstance(wanted, Thresholds):
            return Setting(wanted)
        name = self.default if wanted is None else wanted
        if name is None:
            return DENSE
        if not isinstance(name, str):
            raise DeltakwtError(
                f"setting {name!r}: give a Setting, Thresholds, or the name of a profile"
            )
        return DENSE if name == DENSE.name else self[name].setting

    def with_profile(self, profile: Profile, default: bool = False) -> Profiles:
        """Return these profiles with one added or replaced."""
        return Profiles(
            {**self.profiles, profile.name: profile}, profile.name if default else self.default
        )
