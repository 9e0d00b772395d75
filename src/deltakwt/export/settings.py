"""What is exported, and its sizes and settings as C: config.h and profile.c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import ALL_SITES, FrontEndSetting, Thresholds
from deltakwt.export.arrays import define, number
from deltakwt.export.weights import KINDS, stored
from deltakwt.listen.decision import POSSIBLE_WORD, Decision


@dataclass(frozen=True)
class Export:
    """A model and everything its exported form depends on."""

    name: str
    config: Config
    tensors: dict[str, NDArray[np.float32]]
    kind: str  # of weights: f32, f16, int8
    profile: str  # name of the thresholds and the front end, for the reader
    thresholds: Thresholds | None  # None: dense
    front_end: FrontEndSetting
    decision: Decision

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeltakwtError(f"--weights {self.kind}: must be one of {', '.join(KINDS)}")
        head_dim = self.config.head_dim
        if head_dim % 8 or self.config.mlp % (head_dim // 2):
            raise DeltakwtError(
                f"{self.name}: a head of {head_dim} features cannot be exported;"
                " it must be a multiple of 8, and half of it must divide the MLP's width"
            )

    @property
    def small(self) -> bool:
        """K^, V and features in 16 bits: not worth it where the weights take megabytes."""
        return self.kind != "f32"

    def stored_tensors(self) -> dict[str, NDArray[np.float32]]:
        """The weights that the exported model computes with, under our names."""
        d, found = self.config.dim, dict(self.tensors)
        for name, tensor in self.tensors.items():
            if name.endswith(".weight") and tensor.ndim == 2:
                found[name] = stored(tensor, self.kind)
        if self.kind == "int8":  # W_Q, W_K and W_V share the scale of a row
            for layer in range(self.config.layers):
                names = [f"blocks.{layer}.{part}.weight" for part in ("q", "k", "v")]
                joined = stored(np.concatenate([self.tensors[n] for n in names], axis=1), self.kind)
                found |= {n: joined[:, i * d : (i + 1) * d] for i, n in enumerate(names)}
        return found


def config_source(export: Export) -> str:
    """config.h"""
    config, decision = export.config, export.decision
    sizes = {
        "DK_DIM": config.dim,
        "DK_HEADS": config.heads,
        "DK_MLP": config.mlp,
        "DK_LAYERS": config.layers,
        "DK_LABELS": len(config.labels),
        "DK_FRAMES": config.frames,
        "DK_FEATURES": config.features,
        "DK_HOP_FRAMES": decision.hop_frames,
        "DK_ONSET_FRAMES": decision.compare_frames,
        "DK_SMOOTH_WINDOWS": decision.smooth,
        "DK_PATIENCE_WINDOWS": decision.patience,
        "DK_REFRACTORY_WINDOWS": decision.refractory_windows,
    }
    defines = [f"#define {name} {value}" for name, value in sizes.items()]
    title = f"{export.name}, {export.kind} weights, profile {export.profile}"
    kinds = [f"#define DK_WEIGHTS_{export.kind.upper()}", *["#define DK_SMALL"] * export.small]
    lines = [
        "/* Sizes of the exported model. */",
        "#ifndef DK_CONFIG_H",
        "#define DK_CONFIG_H",
        "",
        f'#define DK_MODEL_NAME "{_text(title)}"',
        *kinds,
        "#define DK_MOST_LANES 1 /* no vectors */",
        *defines,
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def profile_source(export: Export) -> str:
    """profile.c"""
    front_end, decision = export.front_end, export.decision
    labels = ", ".join(f'"{_text(label)}"' for label in export.config.labels)
    parts = [f'/* Profile {_text(export.profile)}. */\n#include "profile.h"\n#include "dk.h"\n']
    parts.append(f"const char *const dk_labels[DK_LABELS] = {{{labels}}};\n")
    if export.thresholds is None:
        parts.append("const float *const dk_thresholds = NULL; /* dense */\n")
    else:
        order = ", ".join(ALL_SITES)
        table = export.thresholds.array(export.config.layers)
        parts.append(define("thresholds", table, f"{order}: "))
        parts.append("const float *const dk_thresholds = thresholds;\n")
    front = (
        f"{{{int(front_end.smooth)}, {float(front_end.floor)!r}, {float(front_end.quantile)!r}}}"
    )
    parts.append(f"const dk_steady dk_front_end = {front};\n")
    on = ", ".join(map(number, decision.thresholds(export.config.labels)))
    parts.append(f"const float dk_on[DK_LABELS] = {{{on}}};")
    parts.append(f"const float dk_off = {number(decision.off)};")
    parts.append(f"const float dk_reuse = {number(decision.reuse)};")
    parts.append(f"const uint32_t dk_stray = {decision.outliers_allowed};")
    parts.append(f"const float dk_maybe = {number(POSSIBLE_WORD)};\n")
    return "\n".join(parts)


def _text(text: str) -> str:
    """Safe inside a C string and a C comment."""
    return "".join(c if c.isascii() and c.isprintable() and c not in '"\\*?' else "_" for c in text)
