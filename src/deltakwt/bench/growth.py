"""How cost grows: with the number of tokens, and with the loudness of the background."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.bench.runners import Setting
from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import Engine
from deltakwt.core.macs import Macs
from deltakwt.weights.folder import Weights

Floats = NDArray[np.float32]
TOKENS = (99, 198, 396, 792, 1584)
LOUDNESS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # amplitude of white noise


def by_tokens(weights: Weights, audio: Floats, setting: Setting, rounds: int) -> dict[str, Any]:
    """One stretch of sound cut into ever more frames: the same second, looked at more often.

    Positions are interpolated. The model was not trained for it; its cost is what is asked for.
    """
    points = []
    for tokens in TOKENS:
        engine = Engine(*stretched(weights, tokens))
        features = dense_frames(engine, audio, tokens - 1, setting)
        run = engine.delta(features, setting.thresholds)
        points.append(
            {
                "tokens": tokens,
                "dense_ms": _best(engine, features, None, rounds),
                "delta_ms": _best(engine, features, setting, rounds),
                "model_percent": Macs(engine.config, run.macs).model_percent,
            }
        )
    return {"setting": setting.name, "points": points}


def stretched(weights: Weights, tokens: int) -> tuple[Config, dict[str, Floats]]:
    """The model for another number of tokens."""
    config = replace(weights.config, frames=tokens - 1)
    positions = weights.tensors["positions"]  # (T, d), the class token's first
    old, new = np.linspace(0, 1, len(positions) - 1), np.linspace(0, 1, tokens - 1)
    sound = np.stack([np.interp(new, old, column) for column in positions[1:].T], axis=1)
    stretch = np.vstack([positions[:1], sound]).astype(np.float32)
    return config, {**weights.tensors, "positions": stretch}


def dense_frames(engine: Engine, audio: Floats, frames: int, setting: Setting) -> Floats:
    """(frames, 40): features of the clip, interpolated to a shorter hop."""
    rows = engine.features(audio, setting.front_end)
    old, new = np.linspace(0, 1, len(rows)), np.linspace(0, 1, frames)
    return np.stack([np.interp(new, old, column) for column in rows.T], axis=1).astype(np.float32)


def by_loudness(engine: Engine, settings: list[Setting], rounds: int, seed: int) -> dict[str, Any]:
    """White noise from digital silence to a tenth of full scale."""
    noise = np.random.default_rng(seed).uniform(-1, 1, CLIP_SAMPLES).astype(np.float32)
    points = []
    for amplitude in LOUDNESS:
        point: dict[str, Any] = {"amplitude": amplitude, "settings": {}}
        for setting in settings:
            features = engine.features(noise * np.float32(amplitude), setting.front_end)
            run = engine.delta(features, setting.thresholds)
            point["settings"][setting.name] = {
                "ms": _best(engine, features, setting, rounds),
                "model_percent": Macs(engine.config, run.macs).model_percent,
            }
        point["dense_ms"] = _best(engine, features, None, rounds)
        points.append(point)
    return {"points": points}


def _best(engine: Engine, features: Floats, setting: Setting | None, rounds: int) -> float:
    table = None if setting is None else setting.thresholds.array(engine.config.layers)
    best = float("inf")
    for _ in range(2 * rounds):
        start = time.perf_counter_ns()
        engine._native.run(features, table, False)
        best = min(best, (time.perf_counter_ns() - start) / 1e6)
    return best
