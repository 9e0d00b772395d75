"""The choice of the scales of the fixed-point engine, from weights and clips.

`calibrate` runs the float model over some clips, records the largest values of every tensor and
chooses the exponents. Inference does not need it: a model folder stores the scales as fixed.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import sqrt

import numpy as np

from deltakwt.core.config import LAYER_NORM_EPS, Config, block_weights
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_weights import LEAST_BITS, MOST_BITS, Floats, Scales, fitting
from deltakwt.core.reference import gelu, head_columns, softmax

# Largest value of 16 bits over largest value seen: for sums of products, whose limit is lower
# (`PEAK_LIMITS`), and for everything else.
SUM_MARGIN, MARGIN = 1.5, 1.25
LEAST_RMS = 16  # a tensor whose typical value is smaller than this many steps is refused
BATCH = 32  # clips at a time


@dataclass
class Range:
    """The largest magnitude and the mean square of one tensor over all clips."""

    most: float = 0.0
    squares: float = 0.0
    count: int = 0

    def see(self, values: Floats) -> Floats:
        """Update the range with the values, and return them."""
        self.most = max(self.most, float(np.abs(values).max()))
        self.squares += float(np.square(values, dtype=np.float64).sum())
        self.count += values.size
        return values

    def bits(self, what: str, margin: float, most: int = 15, least: int = 0) -> int:
        """Return the largest exponent up to `most` that leaves the margin."""
        bits = min(most, fitting(self.most * margin))
        rms = sqrt(self.squares / max(self.count, 1))
        if bits < least or rms * 2.0**bits < LEAST_RMS:
            raise DeltakwtError(
                f"{what}: values up to {self.most:.4g} with a typical size of {rms:.4g} do not fit"
                " 16 bits; use the float engine for this model"
            )
        return bits


def normalised(x: Floats, w: Mapping[str, Floats], name: str) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + np.float32(LAYER_NORM_EPS))
    return np.asarray(scaled * w[f"{name}.weight"] + w[f"{name}.bias"])


def measure(config: Config, tensors: Mapping[str, Floats], clips: Floats) -> list[dict[str, Range]]:
    """Run clips (n, frames, features) in float. Return the ranges by layer, then those of x."""
    ranges = [
        {
            name: Range()
            for name in (
                *("x", "q", "k", "v", "scores", "proj", "sum1", "mlp_in", "hidden", "mlp_out"),
                "sum2",
            )
        }
        for _ in range(config.layers + 1)
    ]
    root = np.float32(sqrt(config.head_dim))
    for first in range(0, len(clips), BATCH):
        part = clips[first : first + BATCH]
        tokens = part @ tensors["embed.weight"] + tensors["embed.bias"]
        classes = np.broadcast_to(tensors["class_token"], (len(part), 1, config.dim))
        x = np.concatenate([classes, tokens], axis=1) + tensors["positions"]
        for layer in range(config.layers):
            w, seen = block_weights(tensors, layer), ranges[layer]
            seen["x"].see(x)
            q = seen["q"].see(x @ w["q.weight"] / root)
            k, v = seen["k"].see(x @ w["k.weight"]), seen["v"].see(x @ w["v.weight"])
            heads = []
            for h in head_columns(config):
                scores = seen["scores"].see(q[..., h] @ k[..., h].swapaxes(1, 2))
                heads.append(softmax(scores) @ v[..., h])
            r = np.concatenate(heads, axis=-1) @ w["proj.weight"] + w["proj.bias"]
            seen["proj"].see(r)
            x = seen["mlp_in"].see(normalised(seen["sum1"].see(x + r), w, "norm1"))
            hidden = seen["hidden"].see(x @ w["mlp_in.weight"] + w["mlp_in.bias"])
            r = gelu(hidden) @ w["mlp_out.weight"] + w["mlp_out.bias"]
            seen["mlp_out"].see(r)
            x = normalised(seen["sum2"].see(x + r), w, "norm2")
        ranges[-1]["x"].see(x)
    return ranges


def calibrate(config: Config, tensors: Mapping[str, Floats], features: Floats) -> Scales:
    """Return scales for a model, from the features (n, frames, features) of some clips.

    A few hundred clips are enough. Digital silence, whose features are the largest of all, is
    always added to them. Raises DeltakwtError, with layer and site, if a range does not fit.
    """
    silence = silent_features(config)
    clips = np.concatenate([np.asarray(features, np.float32), silence[None]])
    ranges = measure(config, tensors, clips)
    per_feature = np.abs(clips).max(axis=(0, 1))
    chosen: dict[str, list[int]] = {field.name: [] for field in fields(Scales)}
    chosen["features"] = [min(15, fitting(float(most) * MARGIN)) for most in per_feature]
    for layer in range(config.layers):
        for name, bits in _layer_bits(config, block_weights(tensors, layer), ranges, layer).items():
            chosen[name].append(bits)
    chosen["x"].append(ranges[-1]["x"].bits("head, x", MARGIN))
    return Scales(**{name: tuple(bits) for name, bits in chosen.items()})


def silent_features(config: Config) -> Floats:
    """Return the features of digital silence: only the first coefficient is not zero."""
    features = np.zeros((config.frames, config.features), np.float32)
    features[:, 0] = -2 * sqrt(80 / 2) * -np.log(1e-12)
    return features


def _layer_bits(
    config: Config, w: Mapping[str, Floats], ranges: list[dict[str, Range]], layer: int
) -> dict[str, int]:
    """Return the exponents of one layer, in the order in which one limits the next."""
    seen = ranges[layer]

    def choose(name: str, margin: float, *limits: int) -> int:
        most = min((MOST_BITS.get(name, 15), *limits))
        return seen[name].bits(f"layer {layer}, {name}", margin, most, LEAST_BITS.get(name, 0))

    def gained(name: str, scale: float = 1.0) -> int:
        """Return by how many bits a product with these weights may exceed its input."""
        return fitting(float(np.abs(w[f"{name}.weight"]).max()) * scale) - 15

    bits = {"x": choose("x", MARGIN)}
    bits["q"] = choose("q", SUM_MARGIN, bits["x"] + gained("q", 1 / sqrt(config.head_dim)))
    bits["k"] = choose("k", SUM_MARGIN, bits["x"] + gained("k"))
    bits["v"] = choose("v", SUM_MARGIN, bits["x"] + gained("v"))
    # With 11 bits, differences up to 16 fit, and exp(-16) is zero in 15 bits.
    bits["scores"] = choose("scores", SUM_MARGIN, bits["q"] + bits["k"] - 15, 11)
    room = fitting(seen["proj"].most * SUM_MARGIN)
    bits["sum1"] = choose("sum1", MARGIN, bits["x"], bits["v"] + gained("proj"), room)
    bits["mlp_in"] = choose("mlp_in", MARGIN)
    bits["hidden"] = choose("hidden", SUM_MARGIN, bits["mlp_in"] + gained("mlp_in"))
    room = fitting(seen["mlp_out"].most * SUM_MARGIN)
    bits["sum2"] = choose("sum2", MARGIN, bits["mlp_in"], bits["hidden"] + gained("mlp_out"), room)
    return bits
