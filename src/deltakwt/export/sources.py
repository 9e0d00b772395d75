"""The C sources of an exported model: config.h, profile.c, weights.c, tables.c and clips.c."""

from __future__ import annotations

from collections.abc import Iterable
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, FEATURES, FFT_SAMPLES, FRAME_SAMPLES, MEL_BANDS
from deltakwt.core.exact_frontend import mel_weights
from deltakwt.core.fixed_arithmetic import EXP2_TERMS, Ints, Norm, q15, to_bytes
from deltakwt.core.fixed_weights import FixedLayer, FixedWeights
from deltakwt.core.setting import ALL_SITES
from deltakwt.export.model import Export
from deltakwt.listen.decision import POSSIBLE_WORD, Decision

TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint16): "uint16_t",
}
MATRICES = ("q", "k", "v", "proj", "mlp_in", "mlp_out")  # of dk_flash_layer, in its order
BIASES = ("proj_bias", "mlp_in_bias", "mlp_out_bias")
NUMBERS = ("key_shift", "score_bits", "hidden_bits", "sum1_shift", "sum2_shift")
HALF = FFT_SAMPLES // 2  # points of the complex FFT
MEL_ROOM = 2 * (HALF + 1)  # weights that the core has room for


# ---------------------------------------------------------------- numbers and text


def number(value: float) -> str:
    """Return a float32 as a C literal that reads back to the same bits."""
    text = f"{np.float32(value):.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def numbers(values: NDArray[Any]) -> Iterable[str]:
    """Return the elements as C literals."""
    flat = values.ravel()
    return map(number, flat) if flat.dtype == np.float32 else map(str, flat.tolist())


def wrapped(words: Iterable[str], width: int = 99) -> str:
    """Return words separated by commas, in indented lines of at most `width` characters."""
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {word},"
    return "\n".join([*lines, line])


def define(name: str, values: NDArray[Any], comment: str = "") -> str:
    """Return the definition of a `static const` array with its shape in a comment."""
    shape = " x ".join(map(str, values.shape))
    head = f"static const {TYPES[values.dtype]} {name}[{values.size}]"
    return f"{head} = {{ /* {comment}{shape} */\n{wrapped(numbers(values))}\n}};\n"


def aligned(definition: str) -> str:
    """Return the definition of an array that the engine reads as words."""
    return definition.replace("] = {", "] DK_WORDS = {", 1)


def string(text: str) -> str:
    """Return a C string literal of exactly this text (UTF-8); other bytes become octal escapes."""
    plain = set(range(32, 127)) - set(b'"\\?')  # ? could begin a trigraph
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def comment(text: str) -> str:
    """Return text that is safe inside a C comment: other characters become underscores."""
    return "".join(c if c.isascii() and c.isprintable() and c not in "*/?\\" else "_" for c in text)


# ---------------------------------------------------------------- config.h and profile.c


def config_source(export: Export) -> str:
    """Return config.h: the sizes of the exported model."""
    config, decision = export.config, export.decision
    sizes = {
        "DK_DIM": config.dim,
        "DK_HEADS": config.heads,
        "DK_MLP": config.mlp,
        "DK_LAYERS": config.layers,
        "DK_LABELS": len(config.labels),
        "DK_STRIDE": config.stride,
        "DK_FRAMES": config.frames,
        "DK_FEATURES": config.features,
        "DK_SCORE_BITS": _score_bits(export.weights()),
        "DK_SMOOTH_WINDOWS": decision.smooth,
        "DK_HOP_MS": 10 * decision.hop_frames,
        "DK_SMOOTHS": int(export.setting.front_end.smooth),
        "DK_FLOORS": int(export.setting.front_end.floor > 0),
    }
    defines = [f"#define {name} {value}" for name, value in sizes.items()]
    title = f"{export.name}, {export.kind} weights, setting {export.setting}"
    kinds = [
        f"#define DK_WEIGHTS_{export.kind.upper()}",
        "#define DK_SMALL /* features of 16 bits, memory shared by front end and inference */",
    ]
    lines = [
        "/* Sizes of the exported model. */",
        "#ifndef DK_CONFIG_H",
        "#define DK_CONFIG_H",
        "",
        f"#define DK_MODEL_NAME {string(title)}",
        *kinds,
        "#define DK_MOST_LANES 1 /* no vectors */",
        *defines,
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def profile_source(export: Export) -> str:
    """Return profile.c: labels, setting and decision rule."""
    setting, decision = export.setting, export.decision
    labels = ", ".join(map(string, export.config.labels))
    parts = [f'/* Setting: {comment(str(setting))}. */\n#include "profile.h"\n#include "dk.h"\n']
    parts.append(f"const char *const dk_labels[DK_LABELS] = {{{labels}}};\n")
    table = export.thresholds()
    if table is None:
        parts.append("const int16_t *const dk_thresholds = NULL; /* dense */\n")
    else:
        parts.append(define("thresholds", table, f"{', '.join(ALL_SITES)}: "))
        parts.append("const int16_t *const dk_thresholds = thresholds;\n")
    front = setting.front_end
    values = f"{int(front.smooth)}, {float(front.floor)!r}, {float(front.quantile)!r}"
    parts.append(f"const dk_front_end_setting dk_front_end = {{{values}}};\n")
    on = decision.thresholds(export.config.labels)
    possible = np.where(on <= 1, POSSIBLE_WORD, 2.0)
    parts.append(f"static const float on[DK_LABELS] = {{{', '.join(map(number, on))}}};")
    parts.append(
        f"const dk_decision dk_rule = {{{', '.join(_rule(decision, export.config.stride))}}};"
    )
    biases = ", ".join(map(number, decision.biases(export.config.labels)))
    parts.append(f"const float dk_logit_biases[DK_LABELS] = {{{biases}}};")
    posteriors = ", ".join(map(number, possible))
    parts.append(f"const float dk_word_posteriors[DK_LABELS] = {{{posteriors}}};\n")
    parts += _formats(export)
    return "\n".join(parts)


def _formats(export: Export) -> list[str]:
    """Return what joins the floats of the front end and the rule to the integers of the engine."""
    scales = 2.0 ** np.array(export.fixed_scales.features)
    most = np.iinfo(np.int32).max
    steps = np.minimum(np.floor(export.decision.reuse * scales), most).astype(np.int64)
    step = number(2.0 ** -export.weights().head_bits)
    return [
        f"const float dk_feature_scales[DK_FEATURES] = {{\n{wrapped(map(number, scales))}\n}};",
        f"const int32_t dk_reuse_steps[DK_FEATURES] = {{\n{wrapped(map(str, steps))}\n}};",
        f"const float dk_logit_step = {step};\n",
    ]


def _rule(decision: Decision, stride: int) -> list[str]:
    """Return the members of the core's struct dk_decision, in their order."""
    return [
        *map(str, (decision.hop_frames, decision.rows(stride)[1], decision.outliers_allowed)),
        *map(number, (decision.reuse, POSSIBLE_WORD, decision.off)),
        *map(str, (decision.smooth, decision.patience, decision.refractory_windows)),
        *("on", number(decision.unknown_bias)),
    ]


# ---------------------------------------------------------------- weights.c


def weights_source(export: Export) -> str:
    """Return weights.c: the arrays, and the dk_flash_model that points to them."""
    weights = export.weights()
    parts = ['/* The integers of the model. */\n#include "engine.h"\n']
    parts += [
        aligned(define("embed", paired(weights.embed.astype(np.int16)))),
        define("positions", weights.positions.astype(np.int16)),
        define("head", weights.head.astype(np.int16)),
        define("head_bias", weights.head_bias.astype(np.int32)),
        define("dk_powers", doubled_powers(_score_bits(weights))).replace("static ", "", 1),
    ]
    layers = []
    for number_, layer in enumerate(weights.layers):
        arrays, members = _layer(layer, number_, export.kind)
        parts += arrays
        layers.append("    {\n        " + ",\n        ".join(members) + ",\n    }")
    joined = ",\n".join(layers)
    parts.append(f"static const dk_flash_layer layers[DK_LAYERS] = {{\n{joined},\n}};\n")
    model = f"embed, positions, head, head_bias, layers, {weights.embed_shift}"
    parts.append(f"const dk_flash_model dk_model_weights = {{{model}}};\n")
    return "\n".join(parts)


def paired(matrix: NDArray[np.int16]) -> NDArray[np.int16]:
    """(rows, columns) -> (rows / 2, columns, 2): two rows side by side, for products of two."""
    rows, columns = matrix.shape
    return np.ascontiguousarray(matrix.reshape(rows // 2, 2, columns).transpose(0, 2, 1))


def _score_bits(weights: FixedWeights) -> int:
    """Return the most fraction bits that the scores of a layer have."""
    return max(layer.score_bits for layer in weights.layers)


def doubled_powers(bits: int) -> NDArray[np.uint16]:
    """Return 2^-f for f in steps of 2^(1 - bits), with 16 fraction bits.

    It is the polynomial of the softmax, doubled: so the engine rounds with one shift and one sum.
    """
    f = np.arange(1 << bits - 1) << 16 - bits
    power = np.full_like(f, EXP2_TERMS[-1])
    for term in EXP2_TERMS[-2::-1]:
        power = q15(power, f) + term
    return (2 * power).astype(np.uint16)


def _layer(layer: FixedLayer, number_: int, kind: str) -> tuple[list[str], list[str]]:
    """Return the arrays of a layer, and the members of its dk_flash_layer."""
    arrays, members = [], []
    for name in MATRICES:
        made, member = _matrix(f"{name}{number_}", getattr(layer, name), kind)
        arrays += made
        members.append(member)
    for name in BIASES:
        arrays.append(define(f"{name}{number_}", getattr(layer, name).astype(np.int16)))
        members.append(f"{name}{number_}")
    for name in ("norm1", "norm2"):
        norm: Norm = getattr(layer, name)
        at = f"{name}_{number_}"
        arrays.append(aligned(define(f"{at}_gain", norm.gain.astype(np.int16))))
        arrays.append(aligned(define(f"{at}_bias", norm.bias.astype(np.int16))))
        members.append(f"{{{at}_gain, {at}_bias, DK_DIM, {norm.epsilon}u, {norm.shift}}}")
    members.append(", ".join(str(getattr(layer, name)) for name in NUMBERS))
    return arrays, members


def _matrix(name: str, matrix: Ints, kind: str) -> tuple[list[str], str]:
    if kind == "int16":
        return [define(name, matrix.astype(np.int16))], f"{{{name}, NULL}}"
    levels, shifts = to_bytes(matrix)
    bytes_ = aligned(define(name, levels))
    return [bytes_, define(f"{name}_shifts", shifts)], f"{{{name}, {name}_shifts}}"


# ---------------------------------------------------------------- tables.c and clips.c


def mel_bands() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """Return the first bin and number of bins of each band, and the halved weights of all."""
    bands = mel_weights()
    padded = np.zeros(MEL_ROOM, np.float32)
    joined = np.concatenate([weights for _, weights in bands])
    padded[: len(joined)] = joined
    first = np.array([first for first, _ in bands], np.uint16)
    return first, np.array([len(weights) for _, weights in bands], np.uint16), padded


def tables() -> dict[str, NDArray[Any]]:
    """Return the members of the core's struct dk_frontend, in their order."""
    n, k = np.arange(FRAME_SAMPLES), np.arange(HALF)
    dct = [
        [
            2 * cos(pi * (2 * band + 1) * c / (2 * MEL_BANDS)) / sqrt(2 * MEL_BANDS)
            for c in range(FEATURES)
        ]
        for band in range(MEL_BANDS)
    ]
    first, bins, mel = mel_bands()
    digits = [(k & 3) << 6, (k >> 2 & 3) << 4, (k >> 4 & 3) << 2, k >> 6]  # base 4, reversed
    quarter = range(HALF // 2 + 1)
    return {
        "dct_data": np.array(dct, np.float32),
        "window": np.array([0.5 - 0.5 * cos(2 * pi * i / FRAME_SAMPLES) for i in n], np.float32),
        "cosine": np.array([cos(2 * pi * i / HALF) for i in k], np.float32),
        "sine": np.array([-sin(2 * pi * i / HALF) for i in k], np.float32),
        "half_cosine": np.array([cos(2 * pi * i / FFT_SAMPLES) for i in quarter], np.float32),
        "half_sine": np.array([-sin(2 * pi * i / FFT_SAMPLES) for i in quarter], np.float32),
        "place": np.sum(digits, axis=0).astype(np.uint8),
        "first": first,
        "bins": bins,
        "mel": mel,
    }


def tables_source(hop: int) -> str:
    """Return tables.c: the tables that the library computes at its start, as constants."""
    members = [
        f"    {{ /* {TYPES[table.dtype]} {name} */\n{wrapped(numbers(table))}\n    }},"
        for name, table in tables().items()
    ]
    return (
        "/* The front end's tables: window, FFT, mel bands, DCT. */\n"
        '#include "engine.h"\n#include "internal.h"\n\n'
        "const dk_frontend dk_flash_frontend = {\n    &dk_scalar,\n"
        "    {dk_flash_frontend.dct_data, DK_BANDS, DK_COEFFICIENTS, DK_DCT_STRIDE, DK_F32},\n"
        + "\n".join(members)
        + f"\n    {hop}, /* uint32_t hop */\n}};\n"
    )


def clips_source(
    samples: NDArray[np.int16], dense: NDArray[np.int32], delta: NDArray[np.int32]
) -> str:
    """Return clips.c: the sound of the self-test, and its logits as the library computes them."""
    return (
        '/* One second of a synthetic voice that says "right". */\n#include "clips.h"\n\n'
        f"const int32_t test_dense[] = {{{', '.join(map(str, dense))}}};\n"
        f"const int32_t test_delta[] = {{{', '.join(map(str, delta))}}};\n"
        f"const int16_t test_word[{CLIP_SAMPLES}] = {{\n{wrapped(numbers(samples))}\n}};\n"
    )
