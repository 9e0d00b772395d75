"""What is exported: a model, its setting, its decision rule, and how its weights are stored.

`write_file` writes every export that is one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.fixed_weights import FixedWeights, Scales, fixed_thresholds, quantize
from deltakwt.core.setting import Setting
from deltakwt.files import write_atomically
from deltakwt.listen.decision import Decision

BOARD_KINDS = ("int8", "int16")  # for microcontrollers
KINDS = ("f32", "f16", *BOARD_KINDS)
LARGEST_HALF = 65504.0
GROUP = 8  # columns that the microcontroller engine takes together


@dataclass(frozen=True)
class Export:
    """A model and everything that its exported form depends on."""

    name: str
    config: Config
    tensors: dict[str, NDArray[np.float32]]
    kind: str  # how weights are stored: f32, f16 or int16 in files, int8 or int16 in C
    setting: Setting
    decision: Decision
    scales: Scales | None = None  # of a model in fixed point

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeltakwtError(f"--weights {self.kind}: must be one of {', '.join(KINDS)}")

    def check_board(self) -> None:
        """Refuse a model that the microcontroller engine cannot run."""
        if self.kind not in BOARD_KINDS:
            raise DeltakwtError(f"--weights {self.kind}: must be one of {', '.join(BOARD_KINDS)}")
        if self.scales is None:
            raise DeltakwtError(
                f"{self.name}: has no scales for fixed point; make them with:"
                f" deltakwt quantize {self.name} --data DIR"
            )
        if self.config.head_dim % GROUP or self.config.mlp % GROUP:
            raise DeltakwtError(
                f"{self.name}: a head of {self.config.head_dim} features and an MLP of"
                f" {self.config.mlp} cannot be exported; both must be multiples of {GROUP}"
            )

    @property
    def weight_bits(self) -> int:
        """The bits of a stored weight of a layer."""
        return 8 if self.kind == "int8" else 16

    @property
    def fixed_scales(self) -> Scales:
        """The scales; `check_board` has made sure that there are some."""
        assert self.scales is not None
        return self.scales

    def weights(self) -> FixedWeights:
        """Return the integers of the model."""
        return quantize(self.config, self.tensors, self.fixed_scales, self.weight_bits)

    def thresholds(self) -> NDArray[np.int16] | None:
        """Return the thresholds as integers, (layers, 9), or None if the setting is dense."""
        if self.setting.thresholds is None:
            return None
        table = fixed_thresholds(self.config, self.fixed_scales, self.setting.thresholds)
        return table.astype(np.int16)

    def engine(self, isa: str | None = None) -> FixedEngine:
        """Return the library's engine with the exported integers: it gives the same bits."""
        return FixedEngine(
            self.config, self.tensors, self.fixed_scales, isa, self.name, self.weight_bits
        )


def half(matrix: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return the matrix in half precision; values beyond its range are clipped."""
    return np.clip(matrix, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def write_file(path: Path, data: bytes, target: str) -> int:
    """Write an export that is one file, and return its size in bytes."""
    if path.is_dir():
        raise DeltakwtError(f"{path}: is a folder; --target {target} writes a file")
    try:
        write_atomically(path, data)
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from error
    return len(data)
