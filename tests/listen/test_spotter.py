"""`Spotter`: the words do not depend on the blocks, and all of the sound counts."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st
from listen.speech import Speech
from numpy.typing import NDArray

import deltakwt
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import Thresholds
from deltakwt.listen import Decision, Event, SecondStage, Spotter
from deltakwt.listen.pcm import RecentSound
from deltakwt.listen.spotter import KEPT_SECONDS, MAX_WAITING
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

THRESHOLDS = Thresholds.parse("0.2_0.2_0.2_0.05_0.001_0.05_0.2_0.05")
DECISION = Decision(on=0.6, off=0.3, smooth=2, patience=1, refractory=1.1)


def spotter(model: Model, **options: object) -> Spotter:
    return Spotter(model, setting=THRESHOLDS, **{"decision": DECISION, **options})  # type: ignore[arg-type]


def all_events(
    listener: Spotter, sound: NDArray[np.generic], size: int, rate: int = 16_000
) -> list[Event]:
    events = []
    for start in range(0, len(sound), size):
        events += listener.push(sound[start : start + size], rate)
    return events + listener.flush()


@pytest.fixture(scope="module")
def expected(model: Model, speech: Speech) -> list[Event]:
    return all_events(spotter(model), speech.sound, 1_600)


def test_a_stream_adds_a_bias_to_the_logit_of_unknown_words(trained: str, speech: Speech) -> None:
    """What the decision adds is what the model's head has less: the same words, scores, times."""
    plain = load_weights(resolve(trained))
    lower = dict(plain.tensors)
    lower["head.bias"] = lower["head.bias"] - np.eye(1, len(plain.config.labels), 1)[0] * 1.5
    found = []
    for tensors, bias in ((plain.tensors, 0.5), (lower, 2.0), (plain.tensors, 6.0)):
        model = Model(plain.config, Engine(plain.config, tensors))
        listener = spotter(model, decision=replace(DECISION, unknown_bias=bias))
        found.append(all_events(listener, speech.sound, 1_600))
    as_before, folded, cautious = found
    assert [(e.label, e.time) for e in folded] == [(e.label, e.time) for e in as_before]
    assert [e.score for e in folded] == pytest.approx([e.score for e in as_before], abs=1e-4)
    assert sum(e.score for e in cautious) < sum(e.score for e in as_before)


def test_it_is_public() -> None:
    assert deltakwt.Spotter is Spotter


def test_words_are_found_where_they_are(expected: list[Event], speech: Speech) -> None:
    assert [event.label for event in expected] == list(speech.words)
    for event in expected:
        begin = speech.words[event.label]
        assert begin - 0.3 < event.start < event.end < begin + 1.3
        assert begin < event.time < begin + 1.5  # the delay is bounded
        assert 0.6 <= event.score <= 1


@pytest.mark.parametrize("size", [7, 160, 1_000, 16_000, 160_000])
def test_the_cut_into_blocks_changes_nothing(
    model: Model, speech: Speech, expected: list[Event], size: int
) -> None:
    assert all_events(spotter(model), speech.sound, size) == expected


def test_single_samples_are_blocks_too(model: Model, speech: Speech) -> None:
    part = speech.sound[:40_000]  # one word
    assert all_events(spotter(model), part, 1) == all_events(spotter(model), part, 40_000)


def test_blocks_wait_in_silence_and_no_word_comes_late(model: Model, speech: Speech) -> None:
    listener, waited, late = spotter(model), [], []
    sound = np.concatenate([np.zeros(48_000, np.float32), speech.sound])
    for end in range(1_600, len(sound), 1_600):
        late += [end / 16_000 - event.time for event in listener.push(sound[end - 1_600 : end])]
        waited.append(end - listener.meter.total.samples)
        assert listener.seconds == end / 16_000
    assert max(waited) == MAX_WAITING - 1_600
    assert len(late) == len(speech.words)
    assert max(late) < 0.1  # the block in which it was decided


def test_a_source_may_use_one_buffer_again_and_again(
    model: Model, speech: Speech, expected: list[Event]
) -> None:
    listener, events, buffer = spotter(model), [], np.zeros(1_600, np.float32)
    whole = len(speech.sound) // 1_600 * 1_600
    for start in range(0, whole, 1_600):
        buffer[:] = speech.sound[start : start + 1_600]
        events += listener.push(buffer)
        buffer[:] = 0.5  # what was pushed is no longer there
    events += listener.push(speech.sound[whole:]) + listener.flush()
    assert events == expected


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_other_rates_are_resampled_as_one_stream(
    model: Model, speech: Speech, expected: list[Event], rate: int
) -> None:
    sound = soxr.resample(speech.sound, 16_000, rate)
    found = all_events(spotter(model), sound, 1_234, rate)
    assert found == all_events(spotter(model), sound, 100_000, rate)
    if rate > 16_000:
        assert [event.label for event in found] == [event.label for event in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.start == pytest.approx(other.start, abs=0.11)


def test_stereo_integers_are_sound(model: Model, speech: Speech, expected: list[Event]) -> None:
    stereo = np.repeat((speech.sound[:, None] * 32767).astype(np.int16), 2, axis=1)
    found = all_events(spotter(model), stereo, 4_000)
    assert [event.label for event in found] == [event.label for event in expected]


def test_the_rate_may_change_in_the_middle(model: Model, speech: Speech) -> None:
    listener = spotter(model)
    events = listener.push(speech.sound[:48_000])
    rest = soxr.resample(speech.sound[48_000:], 16_000, 48_000)
    events += listener.push(rest, 48_000) + listener.flush()
    assert [event.label for event in events] == list(speech.words)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_a_bad_block_is_rejected_and_the_stream_goes_on(
    model: Model, speech: Speech, expected: list[Event], bad: float
) -> None:
    listener = spotter(model)
    events = listener.push(speech.sound[:30_000])
    block = np.zeros(500, np.float32)
    block[77] = bad
    with pytest.raises(DeltakwtError, match="samples must lie in -1 to 1"):
        listener.push(block)
    with pytest.raises(DeltakwtError, match="not sound"):
        listener.push(["word"])
    with pytest.raises(DeltakwtError, match="sample rate 5 Hz"):
        listener.push(np.zeros(3), 5)
    events += listener.push(speech.sound[30_000:]) + listener.flush()
    assert events == expected


def test_silence_and_clipped_sound_are_sound(model: Model) -> None:
    listener = spotter(model)
    assert listener.push(np.zeros(16_000 * 3)) == []
    square = np.sign(np.sin(np.arange(16_000 * 2) * 0.1)).astype(np.float32)
    listener.push(square)
    listener.push(3 * square)
    assert listener.seconds == 7
    assert listener.push(np.zeros(0)) == []


def test_stop_from_another_thread_ends_listening(model: Model) -> None:
    listener = spotter(model)

    def endless() -> object:
        while True:
            yield np.zeros(1_600, np.float32), 16_000

    threading.Timer(0.3, listener.stop).start()
    assert list(listener.listen(endless())) == []  # type: ignore[arg-type]
    assert listener.stopped
    seconds_before = listener.seconds
    assert listener.push(np.zeros(1_600)) == []
    assert listener.seconds == seconds_before


def test_listen_processes_the_end_of_a_source(
    model: Model, speech: Speech, expected: list[Event]
) -> None:
    blocks = ((part, 16_000) for part in np.array_split(speech.sound, 11))
    assert list(spotter(model).listen(blocks)) == expected


def test_the_newest_sound_is_held_and_no_more(model: Model, speech: Speech) -> None:
    listener = spotter(model)
    for _ in range(6):
        listener.push(speech.sound)
    end = 6 * len(speech.sound)
    assert np.array_equal(listener.sound(end - 20_000, end), speech.sound[-20_000:])
    assert np.array_equal(
        listener.sound(end - int(KEPT_SECONDS * 16_000), end)[-1_000:], speech.sound[-1_000:]
    )
    with pytest.raises(DeltakwtError, match="are not held"):
        listener.sound(0, 1_000)
    fresh = spotter(model)
    fresh.push(speech.sound[:1_000])
    assert (fresh.sound(-10, 5)[:10] == 0).all()


def test_memory_does_not_grow(model: Model) -> None:
    """Long streams leave nothing behind: not in the rings, not in the counters."""
    listener = spotter(model)
    hush = np.zeros(16_000 * 10, np.float32)
    for _ in range(8):
        listener.push(hush)
    tracemalloc.start()
    listener.push(hush)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(60):
        listener.push(hush)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 50_000


def test_time_does_not_drift(model: Model, speech: Speech) -> None:
    """The same words in the tenth turn are where they were in the first."""
    listener = spotter(model)
    period = len(speech.sound) / 16_000
    turns = [listener.push(speech.sound) for _ in range(10)]
    found = [[(e.label, round(e.time - n * period, 6)) for e in t] for n, t in enumerate(turns)]
    assert all(turn == found[1] for turn in found[2:])


def test_a_second_stage_confirms_or_refuses(
    model: Model, speech: Speech, expected: list[Event]
) -> None:
    seen = []

    def only_stop(event: Event, window: NDArray[np.float32]) -> bool:
        seen.append((event.label, window.shape))
        start = round(event.window * 16_000)
        assert np.array_equal(window, speech.sound[start : start + 16_000])
        return event.label == "stop"

    listener = spotter(model, verify=only_stop)
    assert [event.label for event in all_events(listener, speech.sound, 5_000)] == ["stop"]
    assert seen == [(event.label, (16_000,)) for event in expected]
    assert (listener.verified, listener.refused) == (1, 2)


def test_a_model_is_a_second_stage(model: Model, speech: Speech) -> None:
    confirmed = all_events(spotter(model, verify=model), speech.sound, 16_000)
    assert [event.label for event in confirmed] == list(speech.words)
    stage = SecondStage(model, THRESHOLDS, score=1.1)
    assert all_events(spotter(model, verify=stage), speech.sound, 16_000) == []
    assert stage.runs == len(speech.words)
    dense = SecondStage(model, "dense")
    assert all_events(spotter(model, verify=dense), speech.sound, 16_000) == confirmed
    assert dense.macs > 2 * stage.macs > 0
    assert SecondStage(model).score == 0.5


def test_an_unknown_setting_is_refused(model: Model) -> None:
    with pytest.raises(DeltakwtError, match="no such profile"):
        Spotter(model, setting="nonsense")


@given(st.lists(st.integers(0, 30), max_size=40))
def test_the_last_samples_are_held_after_any_blocks(sizes: list[int]) -> None:
    recent = RecentSound(kept=50, longest=30)
    sound = np.arange(sum(sizes), dtype=np.float32)
    at = 0
    for size in sizes:
        recent.push(sound[at : at + size])
        at += size
        assert recent.total == at
        first = max(0, at - 50)
        assert np.array_equal(recent.cut(first, at), sound[first:at])


def test_before_the_stream_there_is_silence() -> None:
    recent = RecentSound(10, 10)
    recent.push(np.ones(5, np.float32))
    assert recent.cut(-3, 2).tolist() == [0, 0, 0, 1, 1]
    assert recent.cut(-3, -1).tolist() == [0, 0]


@pytest.mark.parametrize(("start", "end"), [(0, 6), (4, 2)])
def test_samples_that_are_not_held_are_refused(start: int, end: int) -> None:
    recent = RecentSound(10, 10)
    recent.push(np.ones(5, np.float32))
    with pytest.raises(DeltakwtError, match="are not held; 0 to 5 are"):
        recent.cut(start, end)
