"""The time of a clip as a function of the deltas that are kept, fitted on this machine.

The time of a run is nearly linear in the number of kept deltas of each site: a kept delta costs the
products of its row of weights, and the rest of a run costs the same for every setting. The engine
is run with some settings, and one factor per site and a constant are fitted. Factors are not
negative. Some of the settings are left out of the fit, and the error of the model on them is shown.

A search needs thousands of times. Predicted ones take no extra run and have no noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.engine import Engine
from deltakwt.core.setting import ALL_SITES, SITES, WHOLE_THRESHOLDS, Setting, Thresholds

SETTINGS = 24  # that are timed
HELD_OUT = 4  # every fourth is not used for the fit
RUNS = 3
SPREAD = 8.0  # a timed threshold is WHOLE_THRESHOLDS times a factor from 1 / SPREAD to SPREAD

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of a clip: `constant` plus the kept deltas of each site times its factor."""

    constant: float
    factors: Floats  # (9,) milliseconds per kept delta, in the order of ALL_SITES
    error: float  # mean relative error on settings that the fit did not use
    settings: int  # that were timed

    def milliseconds(self, nonzeros: NDArray[np.int64]) -> Floats:
        """Return the time (n,) of runs with these kept deltas (n, layers, 9)."""
        return np.asarray(self.constant + nonzeros.sum(axis=1) @ self.factors)

    def to_json(self) -> dict[str, Any]:
        return {
            "constant_ms": round(self.constant, 6),
            "ns_per_delta": {
                site: round(1e6 * float(factor), 3)
                for site, factor in zip(ALL_SITES, self.factors, strict=True)
            },
            "error_percent": round(100 * self.error, 2),
            "settings": self.settings,
        }


def drawn_settings(count: int, seed: int) -> list[Setting]:
    """Return settings with thresholds drawn site by site, so that a fit can separate the sites."""
    dice = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        factors = SPREAD ** dice.uniform(-1, 1, len(SITES))
        values = {
            site: float(getattr(WHOLE_THRESHOLDS, site) * factor)
            for site, factor in zip(SITES, factors, strict=True)
        }
        made.append(Setting(Thresholds(**values)))
    return made


def fit(
    engine: Engine, clips: NDArray[np.float32], seed: int = 0, count: int = SETTINGS
) -> CostModel:
    """Time `count` settings on features (n, 98, 40), and fit a cost model to them."""
    settings = drawn_settings(count, seed)
    times, kept = time_settings(engine, clips, settings)
    held = np.arange(count) % HELD_OUT == HELD_OUT - 1
    rows = np.column_stack([np.ones(count), kept])
    factors = least_squares(rows[~held], times[~held])
    error = np.abs(rows[held] @ factors - times[held]) / times[held]
    factors = least_squares(rows, times)
    return CostModel(float(factors[0]), factors[1:], float(error.mean()), count)


def time_settings(
    engine: Engine, clips: NDArray[np.float32], settings: Sequence[Setting]
) -> tuple[Floats, Floats]:
    """Return milliseconds per clip (settings,) and mean kept deltas per site (settings, 9).

    The settings take turns, and the fastest run of each counts: other work on the machine can only
    make a run slower.
    """
    times = np.full(len(settings), np.inf)
    kept = np.zeros((len(settings), len(ALL_SITES)))
    for _ in range(RUNS):
        for number, setting in enumerate(settings):
            start = time.process_time()
            batch = engine.batch(clips, setting, threads=1)
            spent = 1e3 * (time.process_time() - start) / len(clips)
            times[number] = min(times[number], spent)
            assert batch.nonzeros is not None
            kept[number] = batch.nonzeros.sum(axis=1).mean(axis=0)
    return times, kept


def milliseconds_per_clip(engine: Engine, features: NDArray[np.float32], setting: Setting) -> float:
    """Return the processor time in milliseconds per clip: the fastest of several runs.

    Other work on the machine can only make a run slower.
    """
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        engine.batch(features, setting, threads=1)
        times.append(time.process_time() - start)
    return 1e3 * min(times) / len(features)


def least_squares(rows: Floats, wanted: Floats) -> Floats:
    """Return the factors (columns,) of the best fit in relative error, none of them negative.

    The most negative factor is set to zero until none is left.
    """
    scaled, one = rows / wanted[:, None], np.ones(len(wanted))
    used = np.flatnonzero(np.abs(rows).max(axis=0) > 0)
    size = np.abs(rows).max(axis=0)
    factors = np.zeros(rows.shape[1])
    while len(used):
        found = np.linalg.lstsq(scaled[:, used] / size[used], one, rcond=None)[0] / size[used]
        if (found >= 0).all():
            factors[used] = found
            break
        used = np.delete(used, int((found * size[used]).argmin()))
    return factors
