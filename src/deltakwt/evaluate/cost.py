"""The time of a clip as a function of the deltas that are kept, fitted on this machine.

A kept delta costs the products of its row of weights. A token in which a site keeps anything costs
the stages that follow (a row of GELU, of scores and their softmax, the end of a product); a token
without kept deltas is skipped. The rest of a run costs the same for every setting. So the time is
a constant, a factor per kept delta and a factor per token, for each site. The engine counts kept
deltas, not the tokens that have any; their number is estimated as if deltas fell on tokens at
random. The engine is run with some settings, and the factors are fitted; none is negative. Some of
the settings are left out of the fit, and the error of the model on them is shown.

A search needs thousands of times. Predicted ones take no extra run and have no noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.setting import ALL_SITES, SITES, WHOLE_THRESHOLDS, Setting, Thresholds

SETTINGS = 32  # so many settings are timed
HELD_OUT = 4  # every fourth setting is not used for the fit
RUNS = 40  # each clip runs so often; the fastest run is its time
BATCH_RUNS = 3
SPREAD = 8.0  # a timed threshold is WHOLE_THRESHOLDS times a factor from 1 / SPREAD to SPREAD
EXACT = 2  # tokens that keep everything: the class token and the first frame

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CostModel:
    """Milliseconds of a clip: see the module."""

    constant: float
    factors: Floats  # (9,) milliseconds per kept delta, in the order of ALL_SITES
    row_factors: Floats  # (9,) milliseconds per token that keeps something
    tokens: int
    exact: Floats  # (9,) deltas that a layer keeps in any case
    error: float  # mean relative error on settings that the fit did not use
    settings: int  # that were timed

    def milliseconds(self, nonzeros: NDArray[np.int64]) -> Floats:
        """Return the time (n,) of runs with these kept deltas (n, layers, 9)."""
        rows = changed_tokens(nonzeros, self.exact, self.tokens)
        return np.asarray(
            self.constant + nonzeros.sum(axis=1) @ self.factors + rows @ self.row_factors
        )

    def to_json(self) -> dict[str, Any]:
        def named(values: Floats, unit: float = 1.0) -> dict[str, float]:
            return {s: round(unit * float(v), 4) for s, v in zip(ALL_SITES, values, strict=True)}

        return {
            "constant_ms": round(self.constant, 6),
            "ns_per_delta": named(self.factors, 1e6),
            "ns_per_token": named(self.row_factors, 1e6),
            "tokens": self.tokens,
            "always_kept": named(self.exact),
            "error_percent": round(100 * self.error, 2),
            "settings": self.settings,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CostModel:
        def values(key: str, unit: float = 1.0) -> Floats:
            return unit * np.array([data[key][site] for site in ALL_SITES])

        return cls(
            data["constant_ms"],
            values("ns_per_delta", 1e-6),
            values("ns_per_token", 1e-6),
            data["tokens"],
            values("always_kept"),
            data["error_percent"] / 100,
            data["settings"],
        )


def always_kept(config: Config) -> Floats:
    """Return the deltas (9,) of a layer that are kept at any threshold."""
    widths = {"scores": config.tokens, "softmax": config.tokens, "mlp_hidden": config.mlp}
    return np.array([float(EXACT * widths.get(site, config.dim)) for site in ALL_SITES])


def changed_tokens(nonzeros: NDArray[np.int64], exact: Floats, tokens: int) -> Floats:
    """Return the tokens (n, 9), over all layers, that keep something beyond what is always kept."""
    spread = np.maximum(nonzeros - exact, 0) / (tokens - EXACT)
    return np.asarray((tokens - EXACT) * (1 - np.exp(-spread)).sum(axis=1))


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
    times, kept = time_settings(engine, clips, drawn_settings(count, seed))
    exact, tokens, sites = always_kept(engine.config), engine.config.tokens, len(ALL_SITES)
    rows = np.stack([changed_tokens(one, exact, tokens) for one in kept])
    terms = np.concatenate([np.ones((*times.shape, 1)), kept.sum(axis=2), rows], axis=2)
    terms[:, :, 1:] *= np.ptp(terms[:, :, 1:], axis=(0, 1)) > 0  # what never changes is constant
    held = np.arange(count) % HELD_OUT == HELD_OUT - 1
    flat = terms.reshape(-1, terms.shape[-1])
    factors = least_squares(flat[np.repeat(~held, len(clips))], times[~held].ravel())
    error = np.abs(terms[held] @ factors - times[held]) / times[held]
    factors = least_squares(flat, times.ravel())
    each, per_row = factors[1 : 1 + sites], factors[1 + sites :]
    return CostModel(float(factors[0]), each, per_row, tokens, exact, float(error.mean()), count)


def time_settings(
    engine: Engine, clips: NDArray[np.float32], settings: Sequence[Setting]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return milliseconds (settings, n) and kept deltas (settings, n, layers, 9) of n clips.

    The settings take turns, and the fastest run of each counts: other work on the machine can only
    make a run slower.
    """
    times = np.full((len(settings), len(clips)), np.inf)
    runs = [engine.runner(setting.thresholds) for setting in settings]
    for _ in range(RUNS):
        for number, run in enumerate(runs):
            for i, clip in enumerate(clips):
                start = time.perf_counter()
                run(clip)
                times[number, i] = min(times[number, i], 1e3 * (time.perf_counter() - start))
    kept = [engine.batch(clips, setting).nonzeros for setting in settings]
    return times, np.stack([one for one in kept if one is not None])


def milliseconds_per_clip(engine: Engine, features: NDArray[np.float32], setting: Setting) -> float:
    """Return the processor time in milliseconds per clip: the fastest of several runs.

    Other work on the machine can only make a run slower.
    """
    times = []
    for _ in range(BATCH_RUNS):
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
