"""Streams of models with a stride: windows, words, gates and second stages."""

from __future__ import annotations

import numpy as np
import pytest
from listen.speech import Speech
from listen.test_spotter import all_events
from numpy.typing import NDArray
from stride_models import SETTING, random_model, shipped_model

import deltakwt
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_engine import FixedEngine
from deltakwt.core.model import Model
from deltakwt.listen import Decision, Spotter
from deltakwt.listen.decision import POSSIBLE_WORD, posteriors
from deltakwt.listen.runner import StreamRunner

DECISION = Decision(hop=0.06, reuse=3.0, compare_seconds=0.33, unknown_bias=0.5)


def expected_windows(
    model: Model, sound: NDArray[np.float32], decision: Decision
) -> tuple[NDArray[np.float32], int]:
    """Return the logits of the windows and how many are computed, written out plainly."""
    config, engine = model.config, model.engine
    rows = engine.frontend.stream(SETTING.front_end).push(sound)
    if isinstance(engine, FixedEngine):  # windows are compared in 16 bits
        scales = np.float32(2) ** np.array(engine.scales.features, np.float32)
        rows = np.clip(np.rint(rows * scales), -32768, 32767) / scales
    hop, newest = 6 // config.stride, -(-33 // config.stride)  # 60 ms, 330 ms
    logits, computed, known, quiet = [], 0, rows[:0], False
    for start in range(0, len(rows) - config.frames + 1, hop):
        window = rows[start : start + config.frames]
        first = config.frames - newest if quiet else 0
        if computed:
            far = (np.abs(window[first:] - known[first:]) > decision.reuse).sum()
        if not computed or far > (decision.max_outliers if quiet else 0):
            known, answer = window, engine.logits(window, SETTING.thresholds)
            answer = answer + decision.biases(model.labels)
            words = posteriors(answer[None])[0, [not w.startswith("_") for w in model.labels]]
            quiet = words.max() < POSSIBLE_WORD
            computed += 1
        logits.append(answer)
    return np.array(logits), computed


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
@pytest.mark.parametrize("stride", [2, 3])
def test_windows_are_those_of_the_definition_in_blocks_of_any_size(
    arithmetic: str, stride: int, speech: Speech
) -> None:
    model, dice = random_model(stride, arithmetic), np.random.default_rng(7)
    sound = np.concatenate([np.zeros(24_000, np.float32), speech.sound])[:100_003]
    expected, computed = expected_windows(model, sound, DECISION)
    assert 10 < computed < len(expected)
    runner, parts, at = StreamRunner(model, SETTING, DECISION), [], 0
    while at < len(sound):
        size = int(dice.choice([1, 159, 161, 319, 321, 481, 961, 7001]))
        parts.append(runner.push(sound[at : at + size]))
        at += size
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert runner.meter.total.computed == computed


def test_a_window_is_due_when_its_frames_are_there() -> None:
    runner = StreamRunner(random_model(2, "float"), SETTING, Decision())
    assert runner.window_done(0) == 16_160  # smoothing needs a frame of 480 samples at 15,680
    assert len(runner.push(np.zeros(16_159, np.float32))) == 0
    assert len(runner.push(np.zeros(1, np.float32))) == 1
    assert len(runner.push(np.zeros(1_599, np.float32))) == 0
    assert len(runner.push(np.zeros(1, np.float32))) == 1


def test_a_hop_has_whole_frames() -> None:
    assert Decision(hop=0.04).rows(2) == (2, 18)
    assert Decision(reuse=0).rows(2) == (5, 49)
    assert Decision(hop=0.5).rows(2) == (25, 25)  # what is new is always compared
    with pytest.raises(DeltakwtError, match=r"hop = 0.05: must be a multiple of 0.02 for a model"):
        Spotter(random_model(2, "float"), decision=Decision(hop=0.05))


@pytest.fixture(scope="module")
def small() -> Model:
    return shipped_model("kwt-0")


@pytest.fixture(scope="module")
def large() -> Model:
    return deltakwt.load("kwt-1")


RULE = Decision(on=0.5, off=0.25, smooth=2)


@pytest.mark.parametrize("size", [7, 1_000, 160_000])
def test_words_are_found_where_they_are_in_blocks_of_any_size(
    size: int, small: Model, speech: Speech
) -> None:
    events = all_events(Spotter(small, decision=RULE), speech.sound, size)
    assert events == all_events(Spotter(small, decision=RULE), speech.sound, 1_600)
    assert [event.label for event in events] == list(speech.words)
    for event in events:
        begin = speech.words[event.label]
        assert begin - 0.3 < event.start < event.end < begin + 1.3
        assert round(event.window * 16_000) % 320 == 0


def test_one_second_is_one_clip(small: Model, speech: Speech) -> None:
    start = int(16_000 * speech.words["left"])
    for length in (12_000, 15_900, 16_000):
        clip = speech.sound[start : start + length]
        found = all_events(Spotter(small, decision=RULE), clip, 500)
        assert [event.label for event in found] == ["left"]


@pytest.mark.parametrize("hop", [0.1, 0.05, 0.01])
def test_a_gate_may_have_another_stride_than_the_model(
    hop: float, large: Model, small: Model, speech: Speech
) -> None:
    """Every third window of 50 ms would lie between two frames of the gate: it takes others."""
    decision = Decision(hop=hop, on=0.6, off=0.3, smooth=2, unknown_bias=0.5)
    listener = Spotter(large, gate=small, decision=decision)
    events = all_events(listener, speech.sound, 1_600)
    assert [event.label for event in events] == list(speech.words)
    assert events == all_events(Spotter(large, gate=small, decision=decision), speech.sound, 777)
    assert 0 < listener.meter.total.computed < listener.meter.total.windows


def test_a_model_with_a_stride_may_have_a_gate_and_a_second_stage(
    large: Model, small: Model, speech: Speech
) -> None:
    listener = Spotter(small, gate=deltakwt.load("kwt-0"), decision=RULE, verify=large)
    assert [e.label for e in all_events(listener, speech.sound, 1_600)] == list(speech.words)
    other = Spotter(large, verify=small)
    assert [e.label for e in all_events(other, speech.sound, 1_600)] == list(speech.words)
    assert other.verified == len(speech.words)


def test_a_gate_cannot_look_between_its_frames(large: Model, small: Model) -> None:
    with pytest.raises(DeltakwtError, match="hop = 0.51: must be a multiple of 0.02"):
        Spotter(large, gate=small, decision=Decision(hop=0.51))
