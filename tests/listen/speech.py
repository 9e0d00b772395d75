"""A stream with known words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Speech:
    """A stream, and the seconds at which its words begin."""

    sound: NDArray[np.float32]
    words: dict[str, float]
