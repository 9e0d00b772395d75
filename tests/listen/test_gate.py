"""A gate: the words of the large model, for a part of its work."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech
from listen.test_spotter import all_events

import deltakwt
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.listen import Decision, Event, Spotter
from deltakwt.listen.spotter import decision_of


@pytest.fixture(scope="module")
def large() -> Model:
    return deltakwt.load("kwt-1")


@pytest.fixture(scope="module")
def small() -> Model:
    return deltakwt.load("kwt-0")


@pytest.fixture(scope="module")
def gated(large: Model, small: Model, speech: Speech) -> list[Event]:
    return all_events(Spotter(large, gate=small), speech.sound, 1_600)


def test_the_words_are_those_of_the_large_model(
    large: Model, speech: Speech, gated: list[Event]
) -> None:
    alone = all_events(Spotter(large), speech.sound, 1_600)
    assert [event.label for event in gated] == [event.label for event in alone]
    assert [event.label for event in gated] == list(speech.words)
    for one, other in zip(gated, alone, strict=True):
        assert one.start == pytest.approx(other.start, abs=0.21)
        assert one.time == pytest.approx(other.time, abs=0.31)  # it may wait for the next look


@pytest.mark.parametrize("size", [7, 1_000, 16_000, 160_000])
def test_the_cut_into_blocks_changes_nothing(
    large: Model, small: Model, speech: Speech, gated: list[Event], size: int
) -> None:
    assert all_events(Spotter(large, gate=small), speech.sound, size) == gated


def test_no_word_comes_after_the_sound_that_its_time_names(
    large: Model, small: Model, speech: Speech
) -> None:
    listener, late = Spotter(large, gate=small), []
    for end in range(160, len(speech.sound), 160):
        late += [end / 16_000 - one.time for one in listener.push(speech.sound[end - 160 : end])]
    assert len(late) == len(speech.words)
    assert all(
        0 <= one < 0.011 for one in late
    )  # at most the block of 10 ms in which it was decided


def test_without_words_the_large_model_computes_nothing(large: Model, small: Model) -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 160_000).astype(np.float32)
    listener, alone = Spotter(large, gate=small), Spotter(large)
    assert all_events(listener, noise, 1_600) == all_events(alone, noise, 1_600) == []
    assert listener.meter.total.computed == 0
    assert 0 < listener.meter.total.macs < alone.meter.total.macs


def test_after_an_event_the_large_model_rests(large: Model, small: Model, speech: Speech) -> None:
    computed = []
    for refractory in (0.4, 0.9):
        decision = Decision(
            smooth=2,
            on=0.6,
            off=0.3,
            patience=1,
            refractory=refractory,
            unknown_bias=decision_of(large).unknown_bias,
        )
        listener = Spotter(large, gate=small, decision=decision)
        words = [event.label for event in all_events(listener, speech.sound, 1_600)]
        assert words == list(speech.words)
        computed.append(listener.meter.total.computed)
    assert computed[1] < computed[0]


@pytest.mark.parametrize("hop", [0.01, 0.25, 0.5, 1.0])
def test_any_hop_will_do(large: Model, small: Model, speech: Speech, hop: float) -> None:
    bias = decision_of(large).unknown_bias
    decision = Decision(hop=hop, smooth=1, on=0.5, off=0.25, patience=0, unknown_bias=bias)
    found = all_events(Spotter(large, gate=small, decision=decision), speech.sound, 1_600)
    known = {event.label for event in found}
    assert known <= set(speech.words)
    assert known or hop == 1.0  # windows do not overlap, so each word may be cut in two


def test_one_second_is_one_clip(large: Model, small: Model, speech: Speech) -> None:
    start = int(16_000 * speech.words["left"])
    clip = speech.sound[start : start + 12_000]
    assert [e.label for e in all_events(Spotter(large, gate=small), clip, 500)] == ["left"]


def test_a_gate_can_be_changed_in_the_stream(large: Model, small: Model, speech: Speech) -> None:
    listener = Spotter(large)
    listener.push(speech.sound[:1_600])
    listener.restart(large, gate=small)
    listener.push(speech.sound[1_600:])
    assert listener.meter.total.samples <= len(speech.sound) == listener.seconds * 16_000


def test_a_gate_must_know_the_words(large: Model, small: Model) -> None:
    with pytest.raises(DeltakwtError, match="must be a Model"):
        Spotter(large, gate="kwt-0")  # type: ignore[arg-type]
    labels = ("_silence_", "_unknown_", *(f"other{n}" for n in range(10)))
    other = deltakwt.load("kwt-0")
    other.config = dataclasses.replace(other.config, labels=labels)
    with pytest.raises(DeltakwtError, match="gate kwt-0: does not know the word 'down'"):
        Spotter(large, gate=other)


def test_commands_have_it(  # type: ignore[no-untyped-def]
    in_process, speech: Speech, full_set: Path, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "words.wav", speech.sound, 16_000)
    heard = in_process(
        *("listen", "-i", tmp_path / "words.wav", "--fast", "--json", "--gate", "kwt-0")
    )
    assert heard.returncode == 0, heard.stderr
    lines = [json.loads(line) for line in heard.stdout.splitlines()]
    assert [line["label"] for line in lines if line["event"] == "word"] == list(speech.words)
    base = ("stress", "--data", full_set, "--split", "val", "--hours", "0.01", "--json")
    macs = []
    for options in ((), ("--gate", "kwt-0")):
        run = json.loads(in_process(*base, "--profile", "accurate", *options).stdout)
        assert run["gate"] == (options[-1] if options else None)
        macs.append(run["settings"][0]["compute"]["macs_per_second"])
    assert 0 < macs[1] < macs[0]
    wrong = in_process(*base, "--gate", "nonsense")
    assert wrong.returncode == 2
    assert "nonsense: no such model" in wrong.stderr
