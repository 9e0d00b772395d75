"""The sound of the self-test, and what the model makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import read_clip
from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.engine import Engine
from deltakwt.core.macs import Macs
from deltakwt.export.arrays import number, numbers, wrapped
from deltakwt.export.settings import Export

WORD = Path(__file__).parent / "right.flac"  # "right", said by espeak-ng


@dataclass(frozen=True)
class Heard:
    """What the core makes of a clip with the weights as they are stored."""

    dense: NDArray[np.float32]  # (labels,) logits
    delta: NDArray[np.float32]
    macs: Macs | None


def word_samples() -> NDArray[np.int16]:
    """(16000,): the word of the self-test."""
    return np.rint(read_clip(WORD) * 32768).clip(-32768, 32767).astype(np.int16)


def silence_samples() -> NDArray[np.int16]:
    return np.zeros(CLIP_SAMPLES, np.int16)


def hear(export: Export, engine: Engine, samples: NDArray[np.int16]) -> Heard:
    features = engine.features(samples.astype(np.float32) / 32768, export.front_end)
    dense = engine.dense(features)
    if export.thresholds is None:
        return Heard(dense, dense, None)
    run = engine.delta(features, export.thresholds)
    return Heard(dense, run.logits, Macs(export.config, run.macs))


def clips_source(export: Export, heard: Heard) -> str:
    """clips.c"""
    tolerance = 0.1 if export.small else 1e-3  # 16-bit K, V and features move a logit a little
    expected = ", ".join(map(number, heard.dense))
    return (
        '/* A second of a synthetic voice saying "right". */\n#include "clips.h"\n\n'
        f"const float test_expected[] = {{{expected}}};\n"
        f"const float test_tolerance = {number(tolerance)};\n"
        f"const uint32_t test_expected_delta = {int(heard.delta.argmax())};\n"
        f"const int16_t test_word[{CLIP_SAMPLES}] = {{\n{wrapped(numbers(word_samples()))}\n}};\n"
    )
