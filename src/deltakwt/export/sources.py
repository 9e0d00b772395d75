"""The C sources of an exported model: config.h, profile.c, weights.c, tables.c and clips.c."""

from __future__ import annotations

from collections.abc import Iterable
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, FEATURES, FFT_SAMPLES, FRAME_SAMPLES, MEL_BANDS
from deltakwt.core.frontend import mel_matrix
from deltakwt.core.setting import ALL_SITES
from deltakwt.export.model import BLOCK_VECTORS, GROUP, Export, half, matrices, quantise, vectors
from deltakwt.listen.decision import POSSIBLE_WORD, Decision

TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.int8): "int8_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
}
MATRIX_TYPES = {"f32": "DK_F32", "f16": "DK_F16", "int8": "DK_INT8"}
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
        "DK_FRAMES": config.frames,
        "DK_FEATURES": config.features,
        "DK_SMOOTH_WINDOWS": decision.smooth,
    }
    defines = [f"#define {name} {value}" for name, value in sizes.items()]
    title = f"{export.name}, {export.kind} weights, setting {export.setting}"
    kinds = [f"#define DK_WEIGHTS_{export.kind.upper()}", *["#define DK_SMALL"] * export.small]
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
    if setting.thresholds is None:
        parts.append("const float *const dk_thresholds = NULL; /* dense */\n")
    else:
        order = ", ".join(ALL_SITES)
        table = setting.thresholds.array(export.config.layers)
        parts.append(define("thresholds", table, f"{order}: "))
        parts.append("const float *const dk_thresholds = thresholds;\n")
    front = setting.front_end
    values = f"{int(front.smooth)}, {float(front.floor)!r}, {float(front.quantile)!r}"
    parts.append(f"const dk_front_end_setting dk_front_end = {{{values}}};\n")
    on = decision.thresholds(export.config.labels)
    possible = np.where(on <= 1, POSSIBLE_WORD, 2.0)
    parts.append(f"static const float on[DK_LABELS] = {{{', '.join(map(number, on))}}};")
    parts.append(f"const dk_decision dk_rule = {{{', '.join(_rule(decision))}, on}};")
    posteriors = ", ".join(map(number, possible))
    parts.append(f"const float dk_word_posteriors[DK_LABELS] = {{{posteriors}}};\n")
    return "\n".join(parts)


def _rule(decision: Decision) -> list[str]:
    """Return the members of the core's struct dk_decision before `on`, in their order."""
    return [
        *map(str, (decision.hop_frames, decision.compare_frames, decision.outliers_allowed)),
        *map(number, (decision.reuse, POSSIBLE_WORD, decision.off)),
        *map(str, (decision.smooth, decision.patience, decision.refractory_windows)),
    ]


# ---------------------------------------------------------------- weights.c


def weights_source(export: Export) -> str:
    """Return weights.c: the arrays, and the dk_model that points to them."""
    config, tensors, kind = export.config, export.tensors, export.kind
    parts = ['/* The weights of the model. */\n#include "engine.h"\n']
    parts += [_matrix(name, matrix, kind) for name, matrix in matrices(config, tensors).items()]
    parts += [define(name, vector) for name, vector in vectors(config, tensors).items()]
    layers = ",\n".join(_layer(export, layer) for layer in range(config.layers))
    parts.append(f"static const dk_layer layers[DK_LAYERS] = {{\n{layers},\n}};\n")
    sizes = (config.dim, config.heads, config.mlp, config.layers, len(config.labels))
    shape = ", ".join(map(str, (*sizes, config.frames, config.features)))
    embed = _reference("embed", (config.features, config.dim), kind)
    head = _reference("head", (config.dim, -(-len(config.labels) // GROUP) * GROUP), kind)
    parts.append(
        "const dk_model dk_flash_model = {\n"
        f"    {{{shape}}},\n    NULL,\n    layers,\n    {embed},\n    {head},\n"
        "    embed_bias,\n    class_token,\n    positions,\n    head_bias,\n};\n"
    )
    return "\n".join(parts)


def _matrix(name: str, matrix: NDArray[np.float32], kind: str) -> str:
    if kind == "int8":
        levels, scales = quantise(matrix)
        return define(name, levels) + define(f"{name}_scales", scales)
    data: NDArray[Any] = half(matrix).view(np.uint16) if kind == "f16" else matrix
    return define(name, data)


def _reference(name: str, shape: tuple[int, int], kind: str) -> str:
    scales = f"{name}_scales" if kind == "int8" else "NULL"
    rows, cols = shape
    return f"{{{name}, {scales}, {rows}, {cols}, {cols}, {MATRIX_TYPES[kind]}}}"


def _layer(export: Export, layer: int) -> str:
    d, m = export.config.dim, export.config.mlp
    shapes = {"qkv": (d, 3 * d), "proj": (d, d), "mlp_in": (d, m), "mlp_out": (m, d)}
    members = [_reference(f"{name}{layer}", shape, export.kind) for name, shape in shapes.items()]
    members += [f"{name}{layer}" for name in BLOCK_VECTORS]
    return "    {\n        " + ",\n        ".join(members) + ",\n    }"


# ---------------------------------------------------------------- tables.c and clips.c


def mel_bands() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """Return the first bin and number of bins of each band, and the halved weights of all."""
    first, bins, weights = [], [], []
    for band in mel_matrix().T:
        (used,) = np.nonzero(band[:HALF])
        first.append(used[0] if len(used) else 0)
        bins.append(len(used))
        weights += [value / 2 for value in band[used]]
    padded = np.zeros(MEL_ROOM, np.float32)
    padded[: len(weights)] = weights
    return np.array(first, np.uint16), np.array(bins, np.uint16), padded


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


def tables_source() -> str:
    """Return tables.c: the tables that the library computes at its start, as constants."""
    members = [
        f"    {{ /* {TYPES[table.dtype]} {name} */\n{wrapped(numbers(table))}\n    }},"
        for name, table in tables().items()
    ]
    return (
        "/* The front end's tables: window, FFT, mel bands, DCT. */\n"
        '#include "engine.h"\n#include "internal.h"\n\n'
        "const dk_frontend dk_flash_frontend = {\n    &dk_scalar,\n"
        "    {dk_flash_frontend.dct_data, NULL, DK_BANDS, DK_COEFFICIENTS, DK_DCT_STRIDE,\n"
        "     DK_F32},\n" + "\n".join(members) + "\n};\n"
    )


def clips_source(
    export: Export, samples: NDArray[np.int16], dense: NDArray[np.float32], best: int
) -> str:
    """Return clips.c: the sound of the self-test, its dense logits, and its best label."""
    tolerance = 0.1 if export.small else 1e-3  # K, V and features of 16 bits change the logits
    return (
        '/* One second of a synthetic voice that says "right". */\n#include "clips.h"\n\n'
        f"const float test_expected[] = {{{', '.join(map(number, dense))}}};\n"
        f"const float test_tolerance = {number(tolerance)};\n"
        f"const uint32_t test_expected_delta = {best};\n"
        f"const int16_t test_word[{CLIP_SAMPLES}] = {{\n{wrapped(numbers(samples))}\n}};\n"
    )
