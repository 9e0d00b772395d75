"""Formats of the fixed-point engine: chosen from weights and clips, stored, applied to weights.

`calibrate` runs the float model over some clips, records the largest values of every tensor and
chooses the exponents. `quantize` converts the weights to the integers that `core.fixed` and the
native engine compute with. `Scales` is what a model folder stores as fixed.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import ceil, floor, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import LAYER_NORM_EPS, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed import FixedLayer, FixedWeights
from deltakwt.core.fixed_arithmetic import HIGHEST, LOWEST, Ints, Norm, to_nearest_bytes
from deltakwt.core.reference import block_weights, gelu, head_columns, softmax
from deltakwt.core.setting import ALL_SITES, DENSE_SITE, Thresholds

Floats = NDArray[np.float32]

FORMAT = 1
# Largest value of 16 bits over largest value seen: for sums of products, whose limit is lower
# (`fixed.PEAK_LIMITS`), and for everything else.
SUM_MARGIN, MARGIN = 1.5, 1.25
MOST_BITS = {"scores": 12, "hidden": 13}  # limits of softmax and GELU; 15 elsewhere
LEAST_BITS = {"scores": 4, "hidden": 4}  # 0 elsewhere
LEAST_RMS = 16  # a tensor whose typical value is smaller than this many steps is refused
LEAST_WEIGHT = 256  # and so is a matrix whose largest weight is
BATCH = 32  # clips at a time


@dataclass(frozen=True)
class Scales:
    """The exponent of every tensor: an integer i stands for i / 2^exponent."""

    features: tuple[int, ...]  # (features): the first MFCC is much larger than the last
    x: tuple[int, ...]  # (layers + 1): input of a layer; the last one is read by the head
    q: tuple[int, ...]  # (layers): queries, divided by sqrt(head_dim)
    k: tuple[int, ...]
    v: tuple[int, ...]  # also of the heads
    scores: tuple[int, ...]
    sum1: tuple[int, ...]  # x + MHSA(x)
    mlp_in: tuple[int, ...]  # its LayerNorm
    hidden: tuple[int, ...]  # before and after GELU
    sum2: tuple[int, ...]  # that + MLP

    def to_json(self) -> dict[str, Any]:
        """Return the content of fixed.json."""
        return {"format": FORMAT} | {name: list(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], config: Config) -> Scales:
        """Read the content of fixed.json and check it against the shape of the model."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise DeltakwtError(f"fixed.json: is not of format {FORMAT}; calibrate the model again")
        counts = {"features": config.features, "x": config.layers + 1}
        values = {}
        for field in fields(cls):
            name, count = field.name, counts.get(field.name, config.layers)
            least, most = LEAST_BITS.get(name, 0), MOST_BITS.get(name, 15)
            value = data.get(name)
            if (
                not isinstance(value, list)
                or len(value) != count
                or not all(type(v) is int and least <= v <= most for v in value)
            ):
                raise DeltakwtError(
                    f"fixed.json: {name} must be {count} integers from {least} to {most}"
                )
            values[name] = tuple(value)
        return cls(**values)


# ------------------------------------------------------------------ calibration


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


def fitting(largest: float) -> int:
    """Return the largest exponent with which a number of that size fits 16 bits."""
    return floor(log2(HIGHEST / largest)) if largest > 0 else 15


def normalised(x: Floats, w: Mapping[str, Floats], name: str) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt(variance + np.float32(LAYER_NORM_EPS))
    return np.asarray(scaled * w[f"{name}.weight"] + w[f"{name}.bias"])


def measure(config: Config, tensors: Mapping[str, Floats], clips: Floats) -> list[dict[str, Range]]:
    """Run clips (n, frames, features) in float; return the ranges per layer, x of the end last."""
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


# ------------------------------------------------------------------ weights and thresholds


def quantize(
    config: Config, tensors: Mapping[str, Floats], scales: Scales, weight_bits: int = 16
) -> FixedWeights:
    """Return the integers of a model with these scales.

    With `weight_bits` 8, the matrices of the layers are rounded to 8 bits with a shift per row.
    """
    if weight_bits not in (8, 16):
        raise DeltakwtError(f"weight_bits {weight_bits!r}: must be 8 or 16")
    d, x = config.dim, scales.x
    positions = np.array(tensors["positions"], np.float64)
    positions[0] += tensors["class_token"]
    positions[1:] += tensors["embed.bias"]
    per_feature = 2.0 ** -np.array(scales.features, np.float64)
    embed = tensors["embed.weight"] * per_feature[:, None]
    total = min(_wide_bits(embed, 65535), x[0] + 15)
    head_bits = min(_wide_bits(tensors["head.weight"].astype(np.float64), 32767), 30 - x[-1])
    bias = np.rint(tensors["head.bias"].astype(np.float64) * 2.0 ** (head_bits + x[-1]))
    if total < x[0] or np.abs(bias).max() >= 1 << 30:
        raise DeltakwtError(
            "embedding or head: the weights do not fit 16 bits; use the float engine"
        )
    return FixedWeights(
        config,
        integers(embed, total, "embed.weight"),
        total - x[0],
        integers(positions, x[0], "positions"),
        tuple(_layer(config, tensors, scales, i, weight_bits) for i in range(config.layers)),
        integers(tensors["head.weight"].reshape(d, -1), head_bits, "head.weight"),
        bias.astype(np.int64),
        head_bits + x[-1],
    )


def _wide_bits(w: NDArray[np.float64], limit: int) -> int:
    """Return the exponent with which no column's sum of magnitudes exceeds the limit."""
    largest = max(float(np.abs(w).sum(axis=0).max()), 1e-9)
    room = limit - len(w)  # each weight may be rounded up by a half
    return min(floor(log2(room / largest)), fitting(float(np.abs(w).max())))


def integers(values: Any, bits: int, what: str) -> Ints:
    """Return the values as integers with that exponent; they must fit -32767..32767."""
    scaled = np.rint(np.asarray(values, np.float64) * 2.0**bits)
    if np.abs(scaled).max() > HIGHEST:
        raise DeltakwtError(f"{what}: does not fit 16 bits with exponent {bits}; calibrate again")
    return scaled.astype(np.int32)


def _norm(w: Mapping[str, Floats], name: str, e_in: int, e_out: int, what: str) -> Norm:
    gain = w[f"{name}.weight"].astype(np.float64) * sqrt(len(w[f"{name}.weight"]))
    bits = min(fitting(float(np.abs(gain).max())), 16 + e_out)
    shift = 14 + bits - e_out
    if not 1 <= shift <= 30:
        raise DeltakwtError(f"{what}: the gain does not fit 16 bits; use the float engine")
    epsilon = max(ceil(len(gain) * LAYER_NORM_EPS * 4.0**e_in), 1)
    return Norm(
        integers(gain, bits, what), integers(w[f"{name}.bias"], e_out, what), epsilon, shift
    )


def _layer(
    config: Config, tensors: Mapping[str, Floats], scales: Scales, layer: int, weight_bits: int
) -> FixedLayer:
    w = block_weights(tensors, layer)
    e = {f.name: getattr(scales, f.name)[layer] for f in fields(scales) if f.name != "features"}

    def matrix(name: str, e_in: int, e_out: int, scale: float = 1.0) -> Ints:
        what = f"layer {layer}, {name}"
        values = integers(w[f"{name}.weight"] * scale, e_out - e_in + 15, what)
        if 0 < np.abs(values).max() < LEAST_WEIGHT:
            raise DeltakwtError(
                f"{what}: the weights are too small for the ranges of input and output; use the"
                " float engine for this model"
            )
        return to_nearest_bytes(values) if weight_bits == 8 else values

    def bias(name: str, bits: int) -> Ints:
        return integers(w[f"{name}.bias"], bits, f"layer {layer}, {name}.bias")

    shifts = {
        "key_shift": e["q"] + e["k"] - 15 - e["scores"],
        "sum1_shift": e["x"] - e["sum1"],
        "sum2_shift": e["mlp_in"] - e["sum2"],
    }
    for name, shift in shifts.items():
        if not 0 <= shift <= 14:
            raise DeltakwtError(f"fixed.json: layer {layer}: {name} is {shift}; calibrate again")
    return FixedLayer(
        q=matrix("q", e["x"], e["q"], 1 / sqrt(config.head_dim)),
        k=matrix("k", e["x"], e["k"]),
        v=matrix("v", e["x"], e["v"]),
        proj=matrix("proj", e["v"], e["sum1"]),
        proj_bias=bias("proj", e["sum1"]),
        mlp_in=matrix("mlp_in", e["mlp_in"], e["hidden"]),
        mlp_in_bias=bias("mlp_in", e["hidden"]),
        mlp_out=matrix("mlp_out", e["hidden"], e["sum2"]),
        mlp_out_bias=bias("mlp_out", e["sum2"]),
        norm1=_norm(w, "norm1", e["sum1"], e["mlp_in"], f"layer {layer}, norm1"),
        norm2=_norm(w, "norm2", e["sum2"], scales.x[layer + 1], f"layer {layer}, norm2"),
        score_bits=e["scores"],
        hidden_bits=e["hidden"],
        **shifts,
    )


def fixed_features(scales: Scales, features: Floats) -> NDArray[np.int16]:
    """Return float features (..., features) in 16 bits, rounded to even, saturated."""
    scaled = np.rint(np.asarray(features, np.float64) * 2.0 ** np.array(scales.features))
    return np.clip(scaled, LOWEST, HIGHEST).astype(np.int16)


def fixed_thresholds(config: Config, scales: Scales, thresholds: Thresholds) -> NDArray[np.int32]:
    """Return the thresholds as integers (layers, 9); -1 where a site is dense.

    A difference of integers is larger than theta * 2^e exactly if it is larger than the next
    integer below that.
    """
    table = thresholds.array(config.layers).astype(np.float64)
    whole = np.minimum(np.floor(table * threshold_scales(config, scales)), HIGHEST)
    return np.where(table == DENSE_SITE, -1, whole).astype(np.int32)


def threshold_scales(config: Config, scales: Scales) -> NDArray[np.float64]:
    """Return what thresholds are multiplied by to compare them with integers, (layers, 9)."""
    site_bits = {"softmax": (15,) * config.layers, "heads": scales.v, "mlp_hidden": scales.hidden}
    bits = [site_bits.get(site) or getattr(scales, site)[: config.layers] for site in ALL_SITES]
    factor: NDArray[np.float64] = 2.0 ** np.array(bits, np.float64).T  # (layers, 9)
    factor[:, ALL_SITES.index("q")] /= sqrt(config.head_dim)  # as the queries are
    return factor
