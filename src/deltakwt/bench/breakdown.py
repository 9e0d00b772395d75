"""Where the time of a delta run goes, and how cost grows with tokens and with loudness."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import STAGES, Engine
from deltakwt.core.macs import PRODUCTS, Macs, dense_macs
from deltakwt.core.setting import DENSE, Setting, Thresholds
from deltakwt.weights.folder import Weights

Floats = NDArray[np.float32]
Table = NDArray[np.float64]  # (layers, stages) or (layers, products)
REPEATS = 5  # runs of each clip; the fastest counts
TOKENS = (99, 198, 396, 792, 1584)
LOUDNESS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # amplitude of white noise


# ------------------------------------------------------------------ time by part


def breakdown(engine: Engine, features: list[Floats], thresholds: Thresholds) -> dict[str, Any]:
    """Return both counts of MACs and the time of each product, and the time of everything else.

    `achieved` is the saved share of the time divided by the saved share of the executed MACs.
    """
    dense = _microseconds(engine, features, None)  # (layers, stages)
    delta = _microseconds(engine, features, thresholds)
    macs = mean_macs(engine, features, thresholds)
    executed, full = np.asarray(macs.executed, float), dense_macs(engine.config).astype(float)
    products = [
        _product(n, name, macs, delta[:, STAGES.index(name)], dense[:, STAGES.index(name)])
        for n, name in enumerate(PRODUCTS)
    ]
    other = [stage for stage in STAGES if stage not in PRODUCTS]
    columns = {stage: STAGES.index(stage) for stage in other}
    share = float(executed.sum() / full.sum())
    time_share = float(delta.sum() / dense.sum())
    return {
        "clips": len(features),
        "dense_us": float(dense.sum()),
        "delta_us": float(delta.sum()),
        "macs_share": float(macs.counts.sum() / full.sum()),
        "executed_share": share,
        "time_share": time_share,
        "achieved": (1 - time_share) / (1 - share) if share < 1 else None,
        "products": products,
        "other_us": {stage: float(delta[:, n].sum()) for stage, n in columns.items()},
        "other_dense_us": {stage: float(dense[:, n].sum()) for stage, n in columns.items()},
        "layers": [
            {
                "macs_share": float(macs.counts[n].sum() / full[n].sum()),
                "executed_share": float(executed[n].sum() / full[n].sum()),
                "dense_us": float(dense[n].sum()),
                "delta_us": float(delta[n].sum()),
            }
            for n in range(engine.config.layers)
        ],
    }


def mean_macs(engine: Engine, features: list[Floats], thresholds: Thresholds) -> Macs:
    """Return both counts of MACs, the mean over the clips."""
    runs = [engine.delta(clip, thresholds) for clip in features]
    counts, kept = (
        np.mean([getattr(run, name) for run in runs], axis=0) for name in ("macs", "nonzeros")
    )
    return Macs(engine.config, counts, kept, engine.isa)


def _product(
    number: int, name: str, macs: Macs, delta: NDArray[Any], dense: NDArray[Any]
) -> dict[str, Any]:
    counts, full = macs.counts[:, number], dense_macs(macs.config)[:, number]
    executed = np.asarray(macs.executed)[:, number]
    columns = {"macs": counts, "executed": executed, "dense_macs": full, "us": delta,
               "dense_us": dense}  # fmt: skip
    return {
        "product": name,
        **{key: float(values.sum()) for key, values in columns.items()},
        "layers": [
            {key: float(values[layer]) for key, values in columns.items()}
            for layer in range(len(full))
        ],
    }


def _microseconds(engine: Engine, features: list[Floats], thresholds: Thresholds | None) -> Table:
    """Return (layers, stages): the mean over the clips of each stage's fastest run."""
    times = [
        np.min([engine.times(clip, thresholds) for _ in range(REPEATS)], axis=0)
        for clip in features
    ]
    return np.asarray(np.mean(times, axis=0) / 1e3)


# ------------------------------------------------------------------ growth of the cost


def by_tokens(weights: Weights, audio: Floats, setting: Setting, rounds: int) -> dict[str, Any]:
    """Return time and MACs when the same second of sound is cut into more and more tokens.

    Features and positions are interpolated. The model was not trained for that, so its answers mean
    nothing here; only the cost is measured.
    """
    points = []
    for tokens in TOKENS:
        engine = Engine(*stretched(weights, tokens))
        features = stretched_features(engine, audio, tokens - 1, setting)
        points.append(
            {
                "tokens": tokens,
                "dense_ms": _fastest(engine, features, DENSE, rounds),
                "delta_ms": _fastest(engine, features, setting, rounds),
                **_percents(engine, features, setting),
            }
        )
    return {"setting": str(setting), "points": points}


def stretched(weights: Weights, tokens: int) -> tuple[Config, dict[str, Floats]]:
    """Return shape and weights of the model for another number of tokens."""
    config = replace(weights.config, frames=tokens - 1)
    positions = weights.tensors["positions"]  # (T, d), the class token's first
    old, new = np.linspace(0, 1, len(positions) - 1), np.linspace(0, 1, tokens - 1)
    sound = np.stack([np.interp(new, old, column) for column in positions[1:].T], axis=1)
    stretch = np.vstack([positions[:1], sound]).astype(np.float32)
    return config, {**weights.tensors, "positions": stretch}


def stretched_features(engine: Engine, audio: Floats, frames: int, setting: Setting) -> Floats:
    """Return (frames, 40): features of the clip, interpolated to a shorter hop."""
    rows = engine.features(audio, setting.front_end)
    old, new = np.linspace(0, 1, len(rows)), np.linspace(0, 1, frames)
    return np.stack([np.interp(new, old, column) for column in rows.T], axis=1).astype(np.float32)


def by_loudness(engine: Engine, settings: list[Setting], rounds: int, seed: int) -> dict[str, Any]:
    """Return time and MACs of white noise, from digital silence to a tenth of full scale."""
    noise = np.random.default_rng(seed).uniform(-1, 1, CLIP_SAMPLES).astype(np.float32)
    points = []
    for amplitude in LOUDNESS:
        point: dict[str, Any] = {"amplitude": amplitude, "settings": {}}
        for setting in settings:
            features = engine.features(noise * np.float32(amplitude), setting.front_end)
            point["settings"][str(setting)] = {
                "ms": _fastest(engine, features, setting, rounds),
                **_percents(engine, features, setting),
            }
        point["dense_ms"] = _fastest(engine, features, DENSE, rounds)
        points.append(point)
    return {"points": points}


def _percents(engine: Engine, features: Floats, setting: Setting) -> dict[str, float | None]:
    assert setting.thresholds is not None
    macs = mean_macs(engine, [features], setting.thresholds)
    return {
        "model_percent": macs.model_percent,
        "executed_model_percent": macs.executed_model_percent,
    }


def _fastest(engine: Engine, features: Floats, setting: Setting, rounds: int) -> float:
    """Return the fastest of 2 * rounds runs in milliseconds."""
    theta = None if setting.thresholds is None else setting.thresholds.array(engine.config.layers)
    best = float("inf")
    for _ in range(2 * rounds):
        start = time.perf_counter_ns()
        engine._native.run(features, theta, False)
        best = min(best, (time.perf_counter_ns() - start) / 1e6)
    return best
