"""Frames are computed once, windows when they are due, and not at all when nothing changed."""

from __future__ import annotations

import numpy as np
import pytest
from listen.speech import Speech
from numpy.typing import NDArray

from deltakwt.core.config import FRAMES
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import PLAIN, FrontEndSetting, Thresholds
from deltakwt.listen.decision import MAYBE, Decision, posteriors
from deltakwt.listen.hearing import Hearing

STEADY = FrontEndSetting(smooth=True, floor=2.0)
THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.2_0.05")


def hearing(model: Model, steady: FrontEndSetting = PLAIN, reuse: float = 0.0) -> Hearing:
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


def test_a_hop_may_be_longer_than_a_window(model: Model) -> None:
    ears = Hearing(model, THRESHOLDS, PLAIN, Decision(hop=1.0))
    assert len(ears.push(np.zeros(16_000 * 4, np.float32))) == 4


def test_digital_silence_is_computed_once_and_exactly(model: Model) -> None:
    sound = np.zeros(16_000 * 4, np.float32)
    ears = hearing(model)
    logits = ears.push(sound)
    assert len(logits) == 31
    assert ears.meter.total.computed == 1
    expected = model.engine.delta(model.engine.features(sound[:16_000]), THRESHOLDS)
    assert (logits == expected.logits).all()
    assert ears.meter.total.macs == expected.macs.sum()


def by_the_book(
    model: Model, steady: FrontEndSetting, sound: NDArray[np.float32], decision: Decision
) -> tuple[NDArray[np.float32], int]:
    """Windows and their reuse, written out: logits, and how many were computed."""
    rows = model.engine.frontend.stream(steady).push(sound)
    computed, logits, known = 0, [], np.zeros((FRAMES, 40), np.float32)
    quiet = False
    for start in range(0, len(rows) - FRAMES + 1, decision.hop_frames):
        window = rows[start : start + FRAMES]
        lenient = quiet and decision.reuse > 0
        first = FRAMES - decision.onset_frames if lenient else 0
        far = np.abs(window[first:] - known[first:]) > decision.reuse
        if not computed or far.sum() > (decision.stray if lenient else 0):
            known, answer = window, model.engine.logits(window, THRESHOLDS)
            words = posteriors(answer[None])[0, [not w.startswith("_") for w in model.labels]]
            quiet = words.max() < MAYBE
            computed += 1
        logits.append(answer)
    return np.array(logits), computed


@pytest.mark.parametrize("reuse", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("onset", "stray"), [(1.0, 0), (1.0, 100), (0.35, 2), (0.01, 100)])
def test_a_window_is_computed_when_enough_has_changed(
    model: Model, speech: Speech, reuse: float, onset: float, stray: int
) -> None:
    decision = Decision(reuse=reuse, onset=onset, stray=stray)
    ears = Hearing(model, THRESHOLDS, STEADY, decision)
    logits = ears.push(speech.sound)
    expected, computed = by_the_book(model, STEADY, speech.sound, decision)
    assert ears.meter.total.computed == computed
    assert np.array_equal(logits, expected)


def test_a_slow_drift_is_noticed_when_it_has_added_up(model: Model) -> None:
    """Louder by 0.2 dB a window: c0 moves by less than `reuse` each time, and by more in all."""
    rng, seconds = np.random.default_rng(4), 4
    hiss = np.tile(rng.normal(0, 0.01, 160), 100 * seconds)  # every frame the same
    louder = 10 ** (np.arange(len(hiss)) / 1600 * 0.2 / 20)
    ears = hearing(model, reuse=1.0)
    ears.push((hiss * louder).astype(np.float32))
    assert 3 <= ears.meter.total.computed <= len(hiss) // 1600 // 2


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
def test_any_cut_gives_the_same_logits_to_the_bit(model: Model, steady: FrontEndSetting) -> None:
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
