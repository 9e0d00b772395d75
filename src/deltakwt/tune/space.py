"""What is searched: thresholds on a logarithmic scale, and the front_end front end's few settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PAPER_SITES, PLAIN, SITES, FrontEndSetting, Thresholds

if TYPE_CHECKING:
    import optuna

# Lowest and highest threshold of a site. Activations are normalised, so the scales carry over
# from model to model; refinement may leave the ranges.
RANGES = {
    "x": (0.08, 1.5),
    "q": (0.04, 1.0),
    "k": (0.04, 1.0),
    "scores": (0.02, 2.0),
    "softmax": (0.0005, 0.02),
    "heads": (0.02, 0.5),
    "mlp_in": (0.1, 1.5),
    "mlp_hidden": (0.02, 0.4),
}
FLOORS = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # few, so that features are computed seldom


@dataclass(frozen=True)
class Point:
    """One setting: thresholds and front end."""

    thresholds: Thresholds
    front_end: FrontEndSetting = PLAIN

    def to_json(self) -> dict[str, Any]:
        return {"thresholds": self.thresholds.to_json(), "steady": self.front_end.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Point:
        return cls(
            Thresholds.from_json(data["thresholds"]), FrontEndSetting.from_json(data["steady"])
        )

    def table(self, layers: int) -> NDArray[np.float64]:
        """(layers, 8) thresholds of the sites that save MACs; -1 where dense."""
        return self.thresholds.array(layers)[:, : len(SITES)].astype(np.float64)

    def with_table(self, table: NDArray[np.float64]) -> Point:
        """The same front end with one threshold a site and layer, to four digits."""
        columns: dict[str, Any] = {
            site: tuple(float(f"{value:.4g}") for value in table[:, column])
            for column, site in enumerate(SITES)
            if (table[:, column] >= 0).all()
        }
        return Point(Thresholds(**columns), self.front_end)


def parse_sites(text: str, option: str = "--sites") -> tuple[str, ...]:
    """`all`, `paper`, or names separated by commas."""
    if text in ("all", "paper"):
        return SITES if text == "all" else PAPER_SITES
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        check_site(name, option)
    return tuple(site for site in SITES if site in names)


def check_site(name: str, option: str) -> None:
    if name not in SITES:
        raise DeltakwtError(f"{option}: unknown site {name!r}; sites are {', '.join(SITES)}")


def suggest(trial: optuna.Trial, sites: Sequence[str], front_end: FrontEndSetting | None) -> Point:
    """Ask Optuna for one threshold a site, and for the front end if none is given."""
    values: dict[str, Any] = {
        site: float(f"{trial.suggest_float(site, *RANGES[site], log=True):.4g}") for site in sites
    }
    if front_end is None:
        smooth = trial.suggest_categorical("smooth", [False, True])
        front_end = FrontEndSetting(smooth, trial.suggest_categorical("floor", FLOORS))
    return Point(Thresholds(**values), front_end)


def known_good(sites: Sequence[str], front_end: FrontEndSetting | None) -> list[dict[str, Any]]:
    """Where a search starts: the paper's setting with an MLP, looser ones, a front_end one."""
    rows = (
        (0.2, 0.2, 0.2, 0.05, 0.001, 0.05, 0.3, 0.1),
        (0.4, 0.16, 0.29, 0.1, 0.0034, 0.07, 0.47, 0.08),
        (0.8, 0.12, 0.1, 0.92, 0.0071, 0.086, 0.77, 0.105),
    )
    starts = [
        {site: v for site, v in zip(SITES, row, strict=True) if site in sites} for row in rows
    ]
    if front_end is not None:
        return starts
    plain = [{**start, "smooth": False, "floor": 0.0} for start in starts[:1]]
    return plain + [{**start, "smooth": True, "floor": f} for start in starts for f in (0.0, 2.0)]
