"""The native front end against the readable one: clips, streams, any length and loudness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import WORDS, clip

from deltakwt.core.frontend import STEP_LEAST, FrontEndStream, mel_energies, mfcc
from deltakwt.core.native import FrontEnd
from deltakwt.core.setting import PLAIN, FrontEndSetting


@pytest.mark.parametrize(
    "front_end", [PLAIN, FrontEndSetting(smooth=True), FrontEndSetting(True, 2.0, 0.2)]
)
def test_features_equal_the_readable_front_end(isa: str, front_end: FrontEndSetting) -> None:
    for word in WORDS:
        expected = mfcc(clip(word), front_end)
        np.testing.assert_allclose(
            FrontEnd(isa).features(clip(word), front_end), expected, atol=1e-3
        )


def test_features_of_digital_silence_are_exact_but_for_rounding(isa: str) -> None:
    silence = np.zeros(16_000, np.float32)
    np.testing.assert_allclose(FrontEnd(isa).features(silence), mfcc(silence), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "front_end", [PLAIN, FrontEndSetting(smooth=True), FrontEndSetting(True, 2.0, 0.3)]
)
def test_a_stream_gives_the_rows_of_its_readable_twin(isa: str, front_end: FrontEndSetting) -> None:
    sound = np.concatenate([clip("yes"), clip("no")])
    expected = FrontEndStream(front_end).push(mel_energies(sound))
    stream = FrontEnd(isa).stream(front_end)
    cuts = np.sort(np.random.default_rng(0).integers(0, len(sound), 60))
    rows = np.concatenate([stream.push(block) for block in np.split(sound, cuts)])
    # Where there is a floor, a band that lies exactly at its tracked level may be pushed the other
    # way in single precision: by one step, which the DCT weighs with at most 0.16.
    step = 0.16 * STEP_LEAST if front_end.floor else 0.0
    np.testing.assert_allclose(rows, expected, atol=2e-3 + step)
    assert np.mean(np.abs(rows - expected) > 2e-3) < 0.1


@settings(max_examples=20, deadline=None)
@given(st.integers(480, 4000), st.floats(1e-8, 1e6), st.integers(0, 9))
def test_features_are_finite_at_any_length_and_loudness(n: int, level: float, seed: int) -> None:
    sound = (level * np.random.default_rng(seed).normal(size=n)).astype(np.float32)
    features = FrontEnd().features(sound)
    assert features.shape == (1 + (n - 480) // 160, 40)
    np.testing.assert_allclose(features, mfcc(sound), atol=2e-3)
