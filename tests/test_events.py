"""Events: one decision layer for files and streams, and times that lie inside the sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from hypothesis import given, settings
from hypothesis import strategies as st

import deltakwt
from deltakwt.audio import read_blocks
from deltakwt.core.config import KEYWORDS
from deltakwt.core.model import Model, load
from deltakwt.evaluate.counts import count_windows
from deltakwt.listen.decision import Decision, Event, WindowEvent
from deltakwt.listen.runner import StreamRunner
from deltakwt.listen.spotter import Spotter, Spotting, decision_of


@pytest.fixture(scope="module")
def model(trained: str) -> Model:
    return load(trained)


def listened(model: Model, path: Path, size: int) -> list[Event]:
    """Return the events of a file that is pushed in blocks."""
    spotter, events = Spotter(model), []
    sound = np.concatenate(list(read_blocks(path)))
    for start in range(0, len(sound), size):
        events += spotter.push(sound[start : start + size])
    return events + spotter.flush()


def test_the_classes_are_public() -> None:
    assert deltakwt.Event is Event
    assert deltakwt.Spotter is Spotter
    assert deltakwt.Spotting is Spotting


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_clip_of_one_second_gives_its_word_in_spot_and_in_listen(model: Model, word: str) -> None:
    path = CLIPS / f"{word}.flac"
    assert soundfile.info(path).duration == 1
    found = model.spot(path).events
    assert [event.label for event in found] == [word]
    for size in (160, 1_600, 16_000):
        assert listened(model, path, size) == found


@pytest.mark.parametrize("name", ["silence", "sentence", "marvin"])
def test_spot_and_listen_give_the_same_events(model: Model, name: str) -> None:
    path = CLIPS / f"{name}.flac"
    found = model.spot(path).events
    assert listened(model, path, 1_234) == found
    if name == "silence":
        assert found == []
    if name == "sentence":
        assert [event.label for event in found] == ["go", "left", "stop", "yes"]


@pytest.mark.parametrize("word", ["yes", "stop", "right"])
@pytest.mark.parametrize("seconds", [0.8, 0.99])
def test_a_clip_of_less_than_one_second_gives_its_word(
    model: Model, word: str, seconds: float
) -> None:
    sound, rate = soundfile.read(CLIPS / f"{word}.flac", dtype="float32")
    (event,) = model.spot(sound[: round(seconds * rate)]).events
    assert event.label == word
    assert 0 <= event.start < event.end <= seconds


@pytest.mark.parametrize("word", ["yes", "left", "on"])
@pytest.mark.parametrize("place", ["start", "end"])
def test_a_word_at_the_start_or_at_the_end_of_a_stream_is_found(
    model: Model, word: str, place: str
) -> None:
    clip, _ = soundfile.read(CLIPS / f"{word}.flac", dtype="float32")
    quiet = np.random.default_rng(1).normal(0, 1e-3, 48_000).astype(np.float32)
    parts = (clip, quiet) if place == "start" else (quiet, clip)
    found = model.spot(np.concatenate(parts)).events
    assert [event.label for event in found] == [word]
    if place == "start":
        assert found[0].start < 1
    else:
        assert 3 <= found[0].start < found[0].end <= 4


@given(
    first=st.integers(0, 200),
    later=st.integers(0, 20),
    patience=st.integers(0, 5),
    smooth=st.integers(1, 20),
    hop=st.sampled_from([0.01, 0.1, 0.5]),
    delay=st.sampled_from([0, 160]),
    data=st.data(),
)
def test_event_times_lie_inside_the_sound(
    first: int, later: int, patience: int, smooth: int, hop: float, delay: int, data: st.DataObject
) -> None:
    decision = Decision(hop=hop, smooth=smooth, patience=patience)
    peak = first + later
    found = WindowEvent(0, np.float32(0.9), first, peak, peak + patience)
    event = found.event(("yes",), decision, delay)
    assert 0 <= event.start < event.end <= event.time
    assert event.window < event.time
    samples = data.draw(st.integers(1, round(16_000 * event.time)))
    ended = found.event(("yes",), decision, delay, samples)
    assert 0 <= ended.start <= ended.end <= samples / 16_000
    assert 0 <= ended.window <= samples / 16_000
    assert ended.time <= samples / 16_000


@settings(max_examples=25)
@given(
    words=st.lists(st.sampled_from(KEYWORDS), min_size=1, max_size=3),
    cut=st.integers(0, 15_999),
    size=st.integers(500, 20_000),
)
def test_times_of_real_words_lie_inside_the_sound(
    model: Model, words: list[str], cut: int, size: int
) -> None:
    clips = [soundfile.read(CLIPS / f"{word}.flac", dtype="float32")[0] for word in words]
    sound = np.concatenate(clips)
    sound = sound[: len(sound) - cut]
    spotter, events = Spotter(model), []
    for start in range(0, len(sound), size):
        events += spotter.push(sound[start : start + size])
    events += spotter.flush()
    assert spotter.seconds == len(sound) / 16_000
    for event in events:
        assert 0 <= event.start <= event.end <= spotter.seconds
        assert 0 <= event.window <= event.time <= spotter.seconds
    assert events == model.spot(sound).events


def test_the_cost_of_a_file_is_counted(model: Model) -> None:
    found = model.spot(CLIPS / "sentence.flac")
    assert found.file == str(CLIPS / "sentence.flac")
    assert found.seconds == 8
    assert found.windows > 70  # one every 100 ms, and those of the ending
    assert 0 < found.reused < found.windows
    assert 0 < found.macs_percent < 30
    counts = count_windows(model, CLIPS / "sentence.flac")
    assert found.windows - found.reused < counts.clips < found.windows  # all that are not reused
    runner = StreamRunner(model, model.setting, decision_of(model))
    for block in read_blocks(CLIPS / "sentence.flac"):
        runner.push(block)
    runner.push(np.zeros(runner.ending(8 * 16_000), np.float32))
    assert counts.clips == runner.meter.total.computed
    assert counts.macs is not None
    assert counts.macs.total * counts.clips == pytest.approx(runner.meter.total.macs)
    one = count_windows(model, CLIPS / "yes.flac")
    assert one.clips == 1


def test_a_dense_run_costs_almost_everything(model: Model) -> None:
    found = model.spot(CLIPS / "yes.flac", setting="dense")
    assert 90 < found.macs_percent <= 100
    assert count_windows(model, CLIPS / "yes.flac", setting="dense").macs is None
