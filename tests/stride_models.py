"""Models with a stride: random ones, and shipped ones that see every second frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fixed_models import scales_of, small_tensors

from deltakwt.core.config import Config, frames_of
from deltakwt.core.engine import Engine
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import Scales
from deltakwt.core.model import Model
from deltakwt.core.setting import FrontEndSetting, Setting, Thresholds
from deltakwt.weights.folder import Weights, load_profiles, load_weights
from deltakwt.weights.registry import find_scales, resolve

THRESHOLDS = Thresholds.parse("0.05_0.05_0.05_0.01_0.001_0.05_0.05_0.05")
STABLE = FrontEndSetting(smooth=True, floor=2.0)
SETTING = Setting(THRESHOLDS, STABLE, "test")


def strided(stride: int) -> Config:
    """Return a small shape that a microcontroller can run, too."""
    return Config(dim=16, heads=2, mlp=24, layers=2, frames=frames_of(stride), stride=stride)


def random_model(stride: int, arithmetic: str, isa: str | None = None) -> Model:
    """Return a model with random weights."""
    config = strided(stride)
    tensors = small_tensors(config)
    # Larger logits, so that different windows get different answers.
    tensors["head.weight"] = tensors["head.weight"] * 8
    if arithmetic == "float":
        return Model(config, Engine(config, tensors, isa), name="random")
    return Model(config, FixedEngine(config, tensors, scales_of(config, tensors), isa))


def every_second_frame(name: str) -> tuple[Weights, Scales]:
    """Return a shipped model with a stride of 2: it was trained with fewer frames, too."""
    known = load_weights(resolve(name))
    scales = find_scales(resolve(name), known)
    assert scales is not None
    if known.config.stride == 2:
        return known, scales
    config = replace(known.config, frames=frames_of(2), stride=2)
    rows = [0, *range(1, known.config.tokens, 2)]
    positions = np.ascontiguousarray(known.tensors["positions"][rows])
    return Weights(config, known.tensors | {"positions": positions}), scales


def shipped_model(name: str) -> Model:
    """Return the same, ready to run in fixed point with its default profile."""
    weights, scales = every_second_frame(name)
    engine = FixedEngine(weights.config, weights.tensors, scales, name=f"{name} with stride 2")
    return Model(weights.config, engine, load_profiles(resolve(name)), f"{name} with stride 2")
