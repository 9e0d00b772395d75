"""Saved events, and the labelled clips that become of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.data.speech_commands import draw, read, split_of, word_clips
from deltakwt.listen import Decision, Spotter
from deltakwt.listen.album import Album, read_album
from deltakwt.listen.review import Answer, clip_name, sketch, unreviewed, write_answer, write_clips

DECISION = Decision(on=0.6, off=0.3, smooth=2, patience=1, refractory=1.1)


@pytest.fixture
def folder(model: Model, speech: Speech, tmp_path: Path) -> Path:
    """Events of a stream that was pushed in blocks."""
    ears = Spotter(model, decision=DECISION)
    album = Album(tmp_path / "events", ears, {"model": "m", "profile": "dense"})
    for block in np.array_split(speech.sound, 50):
        for event in ears.push(block):
            album.add(event)
        album.update()
    for event in ears.flush():
        album.add(event)
    album.update(ended=True)
    return tmp_path / "events"


def test_an_album_holds_the_sound_around_each_event(folder: Path, speech: Speech) -> None:
    saved = read_album(folder)
    assert [one.label for one in saved] == list(speech.words)
    for one in saved:
        sound, rate = soundfile.read(folder / one.file, dtype="float32")
        assert (rate, len(sound)) == (16_000, 32_000)
        start = round(one.line["window"] * 16_000) - 8_000
        if start >= 0:
            np.testing.assert_allclose(sound, speech.sound[start : start + 32_000], atol=1e-4)
        assert one.line["model"] == "m"


def test_an_album_is_added_to_by_later_runs(folder: Path, model: Model) -> None:
    before = len(read_album(folder))
    Album(folder, Spotter(model), {})
    assert len(read_album(folder)) == before


def test_answers_become_a_test_set(folder: Path) -> None:
    yes, left, stop = read_album(folder)
    write_answer(folder, Answer(yes.file, "yes"))
    write_answer(folder, Answer(left.file, "_unknown_"))
    write_answer(folder, Answer(stop.file, "_silence_"))
    assert unreviewed(folder) == []
    out = folder / "labelled"
    assert write_clips(folder, out, "test") == {"_silence_": 1, "_unknown_": 1, "yes": 1}
    manifest = draw(out, "test", "noise")
    assert sorted(clip.label for clip in manifest.clips) == ["_silence_", "_unknown_", "yes"]
    assert write_clips(folder, out, "test")["yes"] == 1
    assert len(word_clips(out)["yes"]) == 1  # again: the same names
    clip = read(manifest, next(c for c in manifest.clips if c.label == "yes"))
    whole, _ = soundfile.read(folder / yes.file, dtype="float32")
    np.testing.assert_allclose(clip, whole[8_000:24_000], atol=1e-4)


@pytest.mark.parametrize("split", ["train", "val"])
def test_answers_become_clips_of_another_split(folder: Path, split: str) -> None:
    for one, label in zip(read_album(folder), ("yes", "marvin", "_silence_"), strict=True):
        write_answer(folder, Answer(one.file, label))
    out = folder / "labelled"
    write_clips(folder, out, split)
    labels = [clip.label for clip in draw(out, split, "noise").clips]
    assert sorted(labels) == ["_silence_", "_unknown_", "yes"]


def test_names_fall_into_their_split_and_stay(folder: Path) -> None:
    for split in ("train", "val", "test"):
        name = clip_name("20260101T000000-0001-yes.wav", split)
        assert split_of(name) == split
        assert name == clip_name("20260101T000000-0001-yes.wav", split)


def test_a_sketch_is_as_wide_as_asked() -> None:
    sound = np.concatenate([np.zeros(1_000), np.ones(1_000)]).astype(np.float32)
    assert sketch(sound, 10) == "     █████"


def test_damaged_albums_are_told(tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match=r"has no events\.jsonl"):
        read_album(tmp_path)
    line = {"file": "../x.wav", "label": "yes", "score": 1, "clip": 0.5}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DeltakwtError, match="line 1 is not an event: a path that leads elsewhere"):
        read_album(tmp_path)
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(DeltakwtError, match="line 1 is not an event"):
        read_album(tmp_path)
    line["file"] = "gone.wav"
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    write_answer(tmp_path, Answer("gone.wav", "yes"))
    with pytest.raises(DeltakwtError, match=r"gone\.wav: not readable"):
        write_clips(tmp_path, tmp_path / "out", "test")
    with pytest.raises(DeltakwtError, match="--split best"):
        write_clips(tmp_path, tmp_path / "out", "best")


def test_the_command_walks_through_and_can_be_resumed(folder: Path) -> None:
    first = run_review(folder, "y\nq\n")
    assert first.returncode == 0, first.stderr
    assert "1 answered, 2 left" in first.stdout
    second = run_review(folder, "?\nno\nu\n")
    assert "[1/2] left" in second.stderr
    assert "2 answered, 0 left" in second.stdout
    assert "_unknown_ 1, no 1, yes 1" in second.stdout
    assert "0 answered, 0 left" in run_review(folder, "").stdout


def run_review(folder: Path, answers: str):  # type: ignore[no-untyped-def]
    import subprocess
    import sys

    return subprocess.run(
        [sys.executable, "-m", "deltakwt", "review", str(folder), "--no-play"],
        input=answers,
        capture_output=True,
        text=True,
        timeout=60,
    )
