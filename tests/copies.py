"""A wide model that is a narrow one several times over: what a true wide model must not be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config

Array = NDArray[np.float32]


def copied(tensors: Mapping[str, Array], wide: Config) -> dict[str, Array]:
    """Return weights of `wide` whose tokens are the narrow tokens side by side.

    Every input copy has an equal share of the narrow weight, so the logits are the narrow ones.
    """
    made = {}
    for name, shape in wide.shapes().items():
        narrow = tensors[name]
        columns = np.tile(narrow, (*[1] * (narrow.ndim - 1), shape[-1] // narrow.shape[-1]))
        times = shape[0] // narrow.shape[0] if narrow.ndim > 1 else 1
        made[name] = np.tile(columns / times, (times, 1)) if times > 1 else columns
    return made
