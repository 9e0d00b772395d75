"""Streaming inference: windows come when they are due, and are reused if little has changed."""

from __future__ import annotations

import numpy as np
import pytest
from listen.speech import Speech
from numpy.typing import NDArray

from deltakwt.core.config import FRAMES
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import DENSE, PLAIN, FrontEndSetting, Setting, Thresholds
from deltakwt.listen.decision import POSSIBLE_WORD, Decision, posteriors
from deltakwt.listen.runner import Meter, StreamRunner, Usage

SECOND = 16_000
STABLE = FrontEndSetting(smooth=True, floor=2.0)
THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.2_0.05")


def runner(model: Model, front_end: FrontEndSetting = PLAIN, reuse: float = 0.0) -> StreamRunner:
    return StreamRunner(model, Setting(THRESHOLDS, front_end), Decision(reuse=reuse))


def test_a_window_is_due_as_soon_as_its_last_sample_is_there(model: Model) -> None:
    plain, smooth = runner(model), runner(model, STABLE)
    assert len(plain.push(np.zeros(15_999, np.float32))) == 0
    assert len(plain.push(np.zeros(1, np.float32))) == 1
    assert len(plain.push(np.zeros(1_599, np.float32))) == 0
    assert len(plain.push(np.zeros(1, np.float32))) == 1
    assert len(smooth.push(np.zeros(smooth.window_done(0) - 1, np.float32))) == 0
    assert len(smooth.push(np.zeros(1, np.float32))) == 1


def test_the_windows_are_those_of_the_clip_front_end(model: Model) -> None:
    """On the plain front end, a window of the stream is the clip that lies there."""
    sound = np.random.default_rng(1).normal(0, 0.05, 24_000).astype(np.float32)
    logits = StreamRunner(model, DENSE, Decision(reuse=0)).push(sound)
    for number, row in enumerate(logits):
        clip = sound[1_600 * number : 1_600 * number + 16_000]
        expected = model.engine.dense(model.engine.features(clip))
        np.testing.assert_allclose(row, expected, atol=2e-4)


def test_a_hop_may_be_longer_than_a_window(model: Model) -> None:
    runs = StreamRunner(model, Setting(THRESHOLDS), Decision(hop=1.0))
    assert len(runs.push(np.zeros(16_000 * 4, np.float32))) == 4


def test_digital_silence_is_computed_once_and_exactly(model: Model) -> None:
    sound = np.zeros(16_000 * 4, np.float32)
    runs = runner(model)
    logits = runs.push(sound)
    assert len(logits) == 31
    assert runs.meter.total.computed == 1
    expected = model.engine.delta(model.engine.features(sound[:16_000]), THRESHOLDS)
    assert (logits == expected.logits).all()
    assert runs.meter.total.macs == expected.macs.sum()


def expected_windows(
    model: Model, front_end: FrontEndSetting, sound: NDArray[np.float32], decision: Decision
) -> tuple[NDArray[np.float32], int]:
    """Return the logits of the windows and how many are computed, written out plainly."""
    rows = model.engine.frontend.stream(front_end).push(sound)
    if isinstance(model.engine, FixedEngine):  # windows are compared in 16 bits
        scales = np.float32(2) ** np.array(model.engine.scales.features, np.float32)
        rows = np.clip(np.rint(rows * scales), -32768, 32767) / scales
    computed, logits, known = 0, [], np.zeros((FRAMES, 40), np.float32)
    quiet = False
    for start in range(0, len(rows) - FRAMES + 1, decision.hop_frames):
        window = rows[start : start + FRAMES]
        lenient = quiet and decision.reuse > 0
        first = FRAMES - decision.compare_frames if lenient else 0
        far = np.abs(window[first:] - known[first:]) > decision.reuse
        if not computed or far.sum() > (decision.max_outliers if lenient else 0):
            known, answer = window, model.engine.logits(window, THRESHOLDS)
            words = posteriors(answer[None])[0, [not w.startswith("_") for w in model.labels]]
            quiet = words.max() < POSSIBLE_WORD
            computed += 1
        logits.append(answer)
    return np.array(logits), computed


@pytest.mark.parametrize("reuse", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("seconds", "outliers"), [(1.0, 0), (1.0, 100), (0.35, 2), (0.01, 100)])
def test_a_window_is_computed_when_enough_has_changed(
    model: Model, speech: Speech, reuse: float, seconds: float, outliers: int
) -> None:
    decision = Decision(reuse=reuse, compare_seconds=seconds, max_outliers=outliers)
    runs = StreamRunner(model, Setting(THRESHOLDS, STABLE), decision)
    logits = runs.push(speech.sound)
    expected, computed = expected_windows(model, STABLE, speech.sound, decision)
    assert runs.meter.total.computed == computed
    assert np.array_equal(logits, expected)


def test_a_slow_drift_is_noticed_when_it_has_added_up(model: Model) -> None:
    """Louder by 0.2 dB a window: c0 moves by less than `reuse` each time, and by more in all."""
    rng, seconds = np.random.default_rng(4), 4
    hiss = np.tile(rng.normal(0, 0.01, 160), 100 * seconds)  # every frame the same
    louder = 10 ** (np.arange(len(hiss)) / 1600 * 0.2 / 20)
    runs = runner(model, reuse=1.0)
    runs.push((hiss * louder).astype(np.float32))
    assert 3 <= runs.meter.total.computed <= len(hiss) // 1600 // 2


def test_a_quiet_room_is_mostly_reused_and_a_word_is_not(model: Model, speech: Speech) -> None:
    sound = speech.sound
    loose, exact = runner(model, STABLE, reuse=3.0), runner(model, STABLE)
    near, full = loose.push(sound), exact.push(sound)
    assert loose.meter.total.computed < exact.meter.total.computed == len(full)
    # No word is no word, whether it is called silence or unknown.
    answers = [np.maximum(logits.argmax(axis=1), 1) for logits in (near, full)]
    agree = (answers[0] == answers[1]).mean()
    assert agree > 0.8


@pytest.mark.parametrize("front_end", [PLAIN, STABLE])
def test_any_cut_gives_the_same_logits_to_the_bit(model: Model, front_end: FrontEndSetting) -> None:
    rng = np.random.default_rng(2)
    sound = rng.normal(0, 0.01, 16_000 * 2).astype(np.float32)
    whole = runner(model, front_end, reuse=0.5).push(sound)
    runs, parts, at = runner(model, front_end, reuse=0.5), [], 0
    while at < len(sound):
        size = int(rng.choice([1, 2, 159, 160, 161, 480, 1600, 7000]))
        parts.append(runs.push(sound[at : at + size]))
        at += size
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_dense_run_is_counted_with_the_shortcut_of_the_last_layer(model: Model) -> None:
    runs = StreamRunner(model, DENSE, Decision())
    runs.push(np.random.default_rng(3).normal(0, 0.1, 16_000).astype(np.float32))
    assert runs.meter.ever.macs_percent == pytest.approx(
        100 * runs.meter.total.macs / dense_macs(model.config).sum()
    )
    assert 90 < runs.meter.ever.macs_percent < 100


def test_the_meter_reads_three_spans() -> None:
    meter = Meter(dense_macs=100)
    for second in range(200):
        macs = 1000 if second < 100 else 100 if second < 199 else 0
        for _ in range(10):
            meter.add(Usage(SECOND // 10, 1, 1, macs // 10, 0.001))
    assert meter.ever.seconds == 200
    assert meter.ever.macs_percent == pytest.approx((100 * 100 + 99 * 10) / 200)
    assert meter.minute.seconds == pytest.approx(60, abs=1)
    assert meter.minute.macs_percent == pytest.approx(10 * 59 / 60, abs=0.2)
    assert meter.now.seconds == pytest.approx(1, abs=0.2)
    assert meter.now.macs_percent < 2
    assert meter.now.cpu_percent == pytest.approx(1)
    assert meter.now.macs_per_second < 20


def test_the_meter_keeps_one_minute_in_memory() -> None:
    meter = Meter(1)
    for _ in range(2000):
        meter.add(Usage(SECOND, 10, 10, 1, 0.0))
    assert len(meter._seconds) <= 61


def test_an_unused_meter_reads_zero() -> None:
    assert Meter(5).to_json()["ever"] == {
        "seconds": 0.0,
        "windows": 0,
        "macs_percent": 0.0,
        "macs_per_second": 0,
        "reused_percent": 0.0,
        "cpu_percent": 0.0,
    }


def test_other_processor_time_belongs_to_the_last_stretch() -> None:
    meter = Meter(100)
    meter.add_cpu(0.5)  # before any sound: in the total only
    meter.add(Usage(SECOND, 10, 1, 1, 0.01))
    meter.add_cpu(0.02)
    assert meter.now.cpu_percent == pytest.approx(3.0)
    assert meter.ever.cpu_percent == pytest.approx(53.0)
