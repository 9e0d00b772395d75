"""Models with random weights whose values fit 16 bits, and their scales."""

from __future__ import annotations

from math import sqrt

import numpy as np
from conftest import CLIPS
from numpy.typing import NDArray

from deltakwt.audio import read_clip
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.fixed_scales import calibrate
from deltakwt.core.fixed_weights import Scales
from deltakwt.core.setting import PLAIN, FrontEndSetting
from deltakwt.weights.folder import random_tensors


def small_tensors(config: Config) -> dict[str, NDArray[np.float32]]:
    """Return random weights that are small enough for fixed point."""
    dice, tensors = np.random.default_rng(1), random_tensors(config)
    for name, w in tensors.items():
        spread = 0.3 / sqrt(len(w) / 20) if w.ndim == 2 and "weight" in name else 0.1
        noise = dice.normal(size=w.shape) * spread
        tensors[name] = (noise + ("norm" in name and "weight" in name)).astype(np.float32)
    tensors["embed.weight"][0] *= 0.01  # the first MFCC of silence is -349
    return tensors


def scales_of(config: Config, tensors: dict[str, NDArray[np.float32]]) -> Scales:
    """Return scales from a few of our clips, each through two front ends."""
    engine = Engine(config, tensors)
    sounds = [read_clip(CLIPS / f"{word}.flac") for word in ("go", "yes", "left", "up")]
    fronts = (PLAIN, FrontEndSetting(smooth=True, floor=2.0))
    features = [engine.features(sound, front) for sound in sounds for front in fronts]
    return calibrate(config, tensors, np.stack(features))
