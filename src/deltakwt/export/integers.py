"""The integers of a model in fixed point, as a model file holds them.

native/src/stored_integers.c reads them. Every part is filled up to a multiple of 64 bytes:

    f64 (layers, 9)      what thresholds are multiplied by
    f32 (features + 1)   what features are multiplied by; the value of 1 in the logits
    i32 (labels)         bias of the head
    i32 (1 + 9 layers)   shifts, bits and epsilons, in the order of `native_numbers`
    i16                  tensors, in the order of `native_tensors`, each one filled up
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import Config
from deltakwt.core.fixed_engine import native_numbers, native_tensors
from deltakwt.core.fixed_scales import Scales, quantize, threshold_scales

ALIGNMENT = 64


def integer_parts(
    config: Config, tensors: dict[str, NDArray[np.float32]], scales: Scales
) -> tuple[bytes, bytes]:
    """Return the scales and numbers of a model, and its 16-bit tensors."""
    weights = quantize(config, tensors, scales)
    features = 2.0 ** np.array(scales.features, np.float64)
    before = (
        threshold_scales(config, scales).astype("<f8"),
        np.append(features, 2.0**-weights.head_bits).astype("<f4"),
        weights.head_bias.astype("<i4"),
        native_numbers(weights).astype("<i4"),
    )
    parts = (tensor.astype("<i2") for tensor in native_tensors(weights))
    return b"".join(map(_filled, before)), b"".join(map(_filled, parts))


def _filled(array: NDArray[np.generic]) -> bytes:
    data = array.tobytes()
    return data + bytes(-len(data) % ALIGNMENT)
