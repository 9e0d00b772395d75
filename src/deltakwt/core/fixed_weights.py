"""The integers of a fixed-point model: scales, weights and thresholds.

`Scales` are the exponents of all tensors, which a model folder stores as fixed.json. `quantize`
converts float weights to the integers that `core.fixed` and the native engine compute with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import ceil, floor, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import LAYER_NORM_EPS, Config, block_weights
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_arithmetic import HIGHEST, LOWEST, Ints, Norm, to_nearest_bytes
from deltakwt.core.setting import ALL_SITES, DENSE_SITE, Thresholds

Floats = NDArray[np.float32]

FORMAT = 1
MOST_BITS = {"scores": 12, "hidden": 13}  # limits of softmax and GELU; 15 elsewhere
LEAST_BITS = {"scores": 4, "hidden": 4}  # 0 elsewhere
LEAST_WEIGHT = 256  # a matrix whose largest weight is smaller is refused

# Tensors whose largest magnitude every run reports. "x" is the input of a layer.
# "deltas" are the differences that are multiplied.
PEAKS = (
    *("x", "qkv", "scores", "heads", "proj", "sum1", "mlp_in", "hidden", "mlp_out", "sum2"),
    "deltas",
)
# A tensor whose peak reaches its limit counts as saturated. Sums of products are modulo 2^16: their
# limit leaves an eighth of the range, so that a sum that is too large by less than that is seen.
SUMS = ("qkv", "scores", "heads", "proj", "hidden", "mlp_out")
PEAK_LIMITS = np.array([HIGHEST * 7 // 8 if name in SUMS else HIGHEST for name in PEAKS])


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
        """Return the document that is stored as fixed.json."""
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


@dataclass(frozen=True)
class FixedLayer:
    """The integers of one layer, of 16 bits each. No weight is below -32767."""

    q: Ints  # (d, d), divided by sqrt(head_dim)
    k: Ints  # (d, d)
    v: Ints  # (d, d)
    proj: Ints  # (d, d)
    proj_bias: Ints
    mlp_in: Ints  # (d, m)
    mlp_in_bias: Ints
    mlp_out: Ints  # (m, d)
    mlp_out_bias: Ints
    norm1: Norm
    norm2: Norm
    key_shift: int  # the keys lose so many bits before Q K^T
    score_bits: int  # fraction bits of the scores, 4..12
    hidden_bits: int  # fraction bits of the hidden layer, 4..13
    sum1_shift: int  # x loses so many bits before MHSA(x) is added to it
    sum2_shift: int  # the same for the MLP


@dataclass(frozen=True)
class FixedWeights:
    """All integers of a model."""

    config: Config
    embed: Ints  # (features, d)
    embed_shift: int
    positions: Ints  # (T, d): positions, the bias of the embedding and the class token, added up
    layers: tuple[FixedLayer, ...]
    head: Ints  # (d, labels)
    head_bias: Ints  # (labels) 32 bits
    head_bits: int  # fraction bits of the logits


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


def fitting(largest: float) -> int:
    """Return the largest exponent with which a number of that size fits 16 bits."""
    return floor(log2(HIGHEST / largest)) if largest > 0 else 15


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
    """Return factors (layers, 9) that turn thresholds into integers of the compared tensors."""
    site_bits = {"softmax": (15,) * config.layers, "heads": scales.v, "mlp_hidden": scales.hidden}
    bits = [site_bits.get(site) or getattr(scales, site)[: config.layers] for site in ALL_SITES]
    factor: NDArray[np.float64] = 2.0 ** np.array(bits, np.float64).T  # (layers, 9)
    factor[:, ALL_SITES.index("q")] /= sqrt(config.head_dim)  # as the queries are
    return factor
