"""While no word is possible, one window of four is computed, and the words are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import CLIPS
from hypothesis import given, settings
from hypothesis import strategies as st
from listen.speech import Speech
from numpy.typing import NDArray

from deltakwt.audio import one_clip, read_blocks
from deltakwt.core.config import Config
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model, load
from deltakwt.core.setting import DENSE
from deltakwt.listen.decision import (
    MOST_SPAN,
    POSSIBLE_WORD,
    Decider,
    Decision,
    Event,
    posteriors,
    smooth_stream,
)
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import Spotter
from deltakwt.weights.folder import random_tensors

WORDS = ("_silence_", "_unknown_", "yes", "no")
RULES = [
    Decision(reuse=0, smooth=9, on=0.6, off=0.3, patience=2, refractory=0.8),
    Decision(reuse=0, smooth=5, on=0.8, off=0.4, patience=0, refractory=0.8),
    Decision(reuse=0, smooth=3, on=0.8, off=0.4, patience=1),
    Decision(reuse=0, hop=0.05, smooth=12, on=0.8, off=0.6, patience=3),
    Decision(reuse=0, smooth=4, on=0.8, off=0.1, refractory=0, words={"yes": 0.9}),
]


def words_of_every_window(
    model: Model, sound: NDArray[np.float32], rule: Decision
) -> tuple[list[Event], int]:
    """Return the words if every window is computed, and the number of windows."""
    runner = StreamRunner(model, model.setting, rule)
    logits = runner.push(sound)
    found = Decider(rule, model.labels).push(logits)
    return [one.event(model.labels, rule, runner.delay) for one in found], len(logits)


def assert_same_words(model: Model, sound: NDArray[np.float32], rule: Decision) -> int:
    """Compare both ways. Return how many windows were left out."""
    expected, windows = words_of_every_window(model, sound, rule)
    spotter = Spotter(model, decision=rule)
    found: list[Event] = []
    for start in range(0, len(sound), 4_000):
        found += spotter.push(sound[start : start + 4_000])
        due = max(0, (start + 4_000 - 16_160) // (rule.hop_frames * 160) + 1)
        assert spotter.meter.total.windows > min(due, windows) - MOST_SPAN  # none is later
    assert [(one.label, one.score, one.time) for one in found] == [
        (one.label, one.score, one.time) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):  # where it began may depend on the others
        assert abs(one.start - other.start) <= rule.smooth * rule.hop
    return windows - spotter.meter.total.computed


@pytest.mark.parametrize("arithmetic", ["float", "fixed"])
@pytest.mark.parametrize("rule", RULES)
def test_the_words_are_those_of_every_window(
    trained: str, speech: Speech, rule: Decision, arithmetic: str
) -> None:
    model = load(trained, arithmetic=arithmetic)
    sentence = np.concatenate(list(read_blocks(CLIPS / "sentence.flac")))
    sound = np.concatenate([speech.sound, sentence, one_clip(CLIPS / "yes.flac")])
    expected, _ = words_of_every_window(model, sound, rule)
    assert len(expected) >= 5
    assert assert_same_words(model, sound, rule) > 0


def restless_model(seed: int) -> Model:
    """Return a random model whose answers change often between very sure and not sure."""
    config = Config(dim=16, heads=2, mlp=32, layers=1, labels=WORDS)
    tensors = dict(random_tensors(config, seed))
    tensors["head.weight"] = tensors["head.weight"] * np.float32(20)
    return Model(config, Engine(config, tensors))


@pytest.mark.parametrize("seed", range(6))
def test_a_word_that_stays_possible_is_computed(seed: int) -> None:
    """Whatever the answers are, every run of `span` windows with a possible word is computed."""
    rng = np.random.default_rng(seed)
    loudness = np.repeat(10.0 ** rng.uniform(-4, -0.5, 40), 4_000)
    sound = (loudness * rng.normal(0, 1, len(loudness))).astype(np.float32)
    model = restless_model(seed)
    for rule in RULES:
        every = StreamRunner(model, model.setting, rule).push(sound)
        some = StreamRunner(model, model.setting, rule, every_window=False).push(sound)
        possible = posteriors(every)[:, 2:].max(axis=1) >= POSSIBLE_WORD
        span = rule.span(WORDS)
        for start in range(len(some) - span + 1):
            run = slice(start, start + span)
            if possible[run].all():
                assert np.array_equal(some[run], every[run])


def test_noise_needs_one_window_of_four(trained: str) -> None:
    """The first windows are all computed, then every fourth."""
    sound = np.random.default_rng(3).normal(0, 0.02, 16_000 * 12).astype(np.float32)
    spotter = Spotter(load(trained), decision=RULES[0])
    assert spotter.push(sound) == []
    total = spotter.meter.total
    assert total.windows == 108  # of 111: the last ones wait
    assert total.computed == 4 + 26


def test_silence_that_waits_is_still_reused(trained: str) -> None:
    spotter = Spotter(load(trained), decision=RULES[0])
    spotter.push(np.zeros(16_000 * 5, np.float32))
    assert spotter.meter.total.computed == 1


@settings(deadline=None)
@given(
    st.integers(2, 12).flatmap(lambda n: st.lists(st.floats(0, 1), min_size=n, max_size=n)),
    st.floats(0.3, 1),
)
def test_an_event_needs_a_possible_word_in_more_windows_than_wait(
    values: list[float], on: float
) -> None:
    rule = Decision(smooth=len(values), on=on, off=on, patience=0)
    scores = np.array([[1 - value, value] for value in values], np.float32)
    logits = np.log(np.maximum(scores, 1e-30)).astype(np.float32)
    if smooth_stream(logits, rule.smooth)[-1, 1] >= np.float32(on):
        possible = (posteriors(logits)[:, 1] >= POSSIBLE_WORD).sum()
        assert possible >= rule.span(("_silence_", "yes"))


CHANGES = [{"on": 0.16, "off": 0.1}, {"smooth": 1}, {"patience": 9}, {"hop": 0.5}]


@pytest.mark.parametrize("change", CHANGES)
def test_rules_that_need_every_window(change: dict[str, float]) -> None:
    """One window can decide, or windows would come too late, or they are far apart."""
    assert replace(RULES[0], **change).span(WORDS) == 0  # type: ignore[arg-type]


def test_windows_that_do_not_overlap_are_refused(trained: str) -> None:
    model = load(trained)
    values = np.full(len(model.labels), 0.5, np.float32)
    options = {"hop": 50, "reuse": 0.0, "onset": 98, "outliers": 0, "word_posteriors": values}
    with pytest.raises(DeltakwtError):
        model.engine.stream_runner(DENSE, span=3, **options)  # type: ignore[arg-type]
    with pytest.raises(DeltakwtError, match="one value per label"):
        model.engine.stream_runner(DENSE, bias=values[1:], **options)  # type: ignore[arg-type]
