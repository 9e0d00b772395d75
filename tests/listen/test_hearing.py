"""Frames are computed once, windows when they are due, and not at all when nothing changed."""

from __future__ import annotations

import numpy as np
import pytest
from listen.speech import Speech

from deltakwt.config import FRAMES
from deltakwt.frontend import PLAIN, Steady
from deltakwt.listen.decision import Decision
from deltakwt.listen.hearing import Hearing, Windows
from deltakwt.macs import dense_macs
from deltakwt.model import Model
from deltakwt.thresholds import Thresholds

STEADY = Steady(smooth=True, floor=2.0)
THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.2_0.05")


def hearing(model: Model, steady: Steady = PLAIN, reuse: float = 0.0) -> Hearing:
    return Hearing(model, THRESHOLDS, steady, Decision(reuse=reuse))


def test_a_window_is_due_as_soon_as_its_last_sample_is_there(model: Model) -> None:
    plain, smooth = hearing(model), hearing(model, STEADY)
    assert len(plain.push(np.zeros(15_999, np.float32))) == 0
    assert len(plain.push(np.zeros(1, np.float32))) == 1
    assert len(plain.push(np.zeros(1_599, np.float32))) == 0
    assert len(plain.push(np.zeros(1, np.float32))) == 1
    assert len(smooth.push(np.zeros(smooth.window_done(0) - 1, np.float32))) == 0
    assert len(smooth.push(np.zeros(1, np.float32))) == 1


def test_the_windows_are_those_of_the_clip_front_end(model: Model) -> None:
    """Without steadying, a window of the stream is the clip that lies there."""
    sound = np.random.default_rng(1).normal(0, 0.05, 24_000).astype(np.float32)
    logits = Hearing(model, None, PLAIN, Decision(reuse=0)).push(sound)
    for number, row in enumerate(logits):
        clip = sound[1_600 * number : 1_600 * number + 16_000]
        expected = model.engine.dense(model.engine.features(clip))
        np.testing.assert_allclose(row, expected, atol=2e-4)


def test_digital_silence_is_computed_once_and_exactly(model: Model) -> None:
    sound = np.zeros(16_000 * 4, np.float32)
    ears = hearing(model)
    logits = ears.push(sound)
    assert len(logits) == 31
    assert ears.meter.total.computed == 1
    expected = model.engine.delta(model.engine.features(sound[:16_000]), THRESHOLDS)
    assert (logits == expected.logits).all()
    assert ears.meter.total.macs == expected.macs.sum()


def test_reuse_is_bounded_by_the_difference_to_the_last_computed_window() -> None:
    rows = np.cumsum(np.full((FRAMES + 40, 1), 0.01, np.float32), axis=0).repeat(40, axis=1)
    exact, near = Windows(10, 0.0), Windows(10, 0.15)
    assert exact.push(rows)[1] == [True] * 5
    # a slow drift is noticed when it has added up: 0.1 a window against 0.15
    assert near.push(rows)[1] == [True, False, True, False, True]


def test_a_quiet_steadied_room_is_mostly_reused_and_a_word_is_not(
    model: Model, speech: Speech
) -> None:
    sound = speech.sound
    loose, exact = hearing(model, STEADY, reuse=3.0), hearing(model, STEADY)
    near, full = loose.push(sound), exact.push(sound)
    assert loose.meter.total.computed < exact.meter.total.computed == len(full)
    agree = (near.argmax(axis=1) == full.argmax(axis=1)).mean()
    assert agree > 0.8


@pytest.mark.parametrize("steady", [PLAIN, STEADY])
def test_any_cut_gives_the_same_logits_to_the_bit(model: Model, steady: Steady) -> None:
    rng = np.random.default_rng(2)
    sound = rng.normal(0, 0.01, 16_000 * 2).astype(np.float32)
    whole = hearing(model, steady, reuse=0.5).push(sound)
    ears, parts, at = hearing(model, steady, reuse=0.5), [], 0
    while at < len(sound):
        size = int(rng.choice([1, 2, 159, 160, 161, 480, 1600, 7000]))
        parts.append(ears.push(sound[at : at + size]))
        at += size
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_dense_run_is_counted_with_the_shortcut_of_the_last_layer(model: Model) -> None:
    ears = Hearing(model, None, PLAIN, Decision())
    ears.push(np.random.default_rng(3).normal(0, 0.1, 16_000).astype(np.float32))
    assert ears.meter.ever.macs_percent == pytest.approx(
        100 * ears.meter.total.macs / dense_macs(model.config).sum()
    )
    assert 90 < ears.meter.ever.macs_percent < 100
