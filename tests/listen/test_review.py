"""Saved events, their review, and the labelled clips that are made of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech

from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.data.speech_commands import draw, read, split_of, word_clips
from deltakwt.evaluate.review import (
    clip_name,
    play,
    read_sound,
    sketch,
    unreviewed,
    write_answer,
    write_clips,
)
from deltakwt.listen import Decision, Spotter
from deltakwt.listen.saved import EventWriter, read_saved

DECISION = Decision(on=0.6, off=0.3, smooth=2, patience=1, refractory=1.1)


@pytest.fixture
def folder(model: Model, speech: Speech, tmp_path: Path) -> Path:
    """Events of a stream that was pushed in blocks."""
    listener = Spotter(model, decision=DECISION)
    writer = EventWriter(tmp_path / "events", listener, {"model": "m", "profile": "dense"})
    for block in np.array_split(speech.sound, 50):
        for event in listener.push(block):
            writer.add(event)
        writer.update()
    for event in listener.flush():
        writer.add(event)
    writer.update(has_ended=True)
    return tmp_path / "events"


def test_the_sound_around_each_event_is_saved(folder: Path, speech: Speech) -> None:
    saved = read_saved(folder)
    assert [one.label for one in saved] == list(speech.words)
    for one in saved:
        sound, rate = soundfile.read(folder / one.file, dtype="float32")
        assert (rate, len(sound)) == (16_000, 32_000)
        start = round(one.line["window"] * 16_000) - 8_000
        if start >= 0:
            np.testing.assert_allclose(sound, speech.sound[start : start + 32_000], atol=1e-4)
        assert one.line["model"] == "m"


def test_later_runs_add_to_a_folder(folder: Path, model: Model) -> None:
    before = len(read_saved(folder))
    EventWriter(folder, Spotter(model), {})
    assert len(read_saved(folder)) == before


def test_answers_become_a_test_set(folder: Path) -> None:
    yes, left, stop = read_saved(folder)
    write_answer(folder, yes.file, "yes")
    write_answer(folder, left.file, "_unknown_")
    write_answer(folder, stop.file, "_silence_")
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
    for one, label in zip(read_saved(folder), ("yes", "marvin", "_silence_"), strict=True):
        write_answer(folder, one.file, label)
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


def test_damaged_folders_give_one_line(tmp_path: Path) -> None:
    with pytest.raises(DeltakwtError, match=r"has no events\.jsonl"):
        read_saved(tmp_path)
    line = {"file": "../x.wav", "label": "yes", "score": 1, "clip": 0.5}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DeltakwtError, match="line 1 is not an event: file must be a name"):
        read_saved(tmp_path)
    (tmp_path / "events.jsonl").write_text("{}\n")
    with pytest.raises(DeltakwtError, match="line 1 is not an event"):
        read_saved(tmp_path)
    line["file"] = "gone.wav"
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    write_answer(tmp_path, "gone.wav", "yes")
    with pytest.raises(DeltakwtError, match=r"gone\.wav: no such file"):
        write_clips(tmp_path, tmp_path / "out", "test")
    with pytest.raises(DeltakwtError, match="--split best"):
        write_clips(tmp_path, tmp_path / "out", "best")


def test_the_command_walks_through_and_can_be_resumed(folder: Path) -> None:
    first = run_review(folder, "y\nq\n")
    assert first.returncode == 0, first.stderr
    assert "1 answered, 2 left" in first.stdout
    second = run_review(folder, "?\nx\nno\nu\n")
    assert "[1/2] left" in second.stderr
    assert "2 answered, 0 left" in second.stdout
    assert "_unknown_ 1, no 1, yes 1" in second.stdout
    assert "0 answered, 0 left" in run_review(folder, "").stdout


def test_r_means_right(folder: Path) -> None:
    done = run_review(folder, "r\nr\nR\n")
    assert "3 answered, 0 left" in done.stdout
    assert "left 1, stop 1, yes 1" in done.stdout


EVENT = {"file": "a.wav", "label": "yes", "score": 1, "clip": 0.5, "start": 1.0}


@pytest.mark.parametrize(
    "label", ["../../x", "/tmp/x", "a/b", "..", "", "_background_noise_", "a\n", "x" * 65, 3, None]
)
def test_labels_in_files_are_checked_like_typed_ones(tmp_path: Path, label: object) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    soundfile.write(folder / "a.wav", np.zeros(32_000), 16_000)
    (folder / "events.jsonl").write_text(json.dumps(EVENT | {"label": label}) + "\n")
    done = run_review(folder, "y\n")
    assert done.returncode == 2
    assert "line 1 is not an event: label must be a word" in done.stderr
    (folder / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    (folder / "reviewed.jsonl").write_text(json.dumps({"file": "a.wav", "label": label}) + "\n")
    done = run_review(folder, "")
    assert done.returncode == 2
    assert "reviewed.jsonl: line 1 is not an answer" in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*.wav")) == ["a.wav"]


@pytest.mark.parametrize("link", ["labelled", "labelled/yes", "reviewed.jsonl"])
def test_nothing_is_written_through_a_link_of_the_folder(tmp_path: Path, link: str) -> None:
    folder, elsewhere = tmp_path / "events", tmp_path / "elsewhere"
    folder.mkdir()
    soundfile.write(folder / "a.wav", np.zeros(32_000), 16_000)
    (folder / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    (folder / link).parent.mkdir(exist_ok=True)
    if link != "reviewed.jsonl":
        elsewhere.mkdir()
    (folder / link).symlink_to(elsewhere)
    done = run_review(folder, "y\n")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("is a link; remove it, or choose another --out")
    assert not elsewhere.exists() or not list(elsewhere.iterdir())


@pytest.mark.parametrize("out", ["events/link/labelled", "{}/events/link", "x/../events/link"])
def test_no_way_to_name_the_folder_leads_through_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, elsewhere = Path("events"), tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere)
    soundfile.write(folder / "a.wav", np.zeros(32_000), 16_000)
    (folder / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    write_answer(folder, "a.wav", "yes")
    with pytest.raises(DeltakwtError, match="link: is a link; remove it"):
        write_clips(folder, Path(out.format(tmp_path)), "test")
    assert not list(elsewhere.iterdir())


def test_the_name_of_a_sound_is_no_option_of_the_player(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = tmp_path / "pw-play"
    player.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/played\n')
    player.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert play(Path("--remote=evil.wav"))
    assert (tmp_path / "played").read_text() == f"{tmp_path}/--remote=evil.wav\n"


def test_saved_sound_is_checked_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    for sound, rate, reason in (
        (np.zeros(61 * 16_000), 16_000, "at most a minute"),
        (np.zeros(800), 8_000, "must be 16 kHz mono"),
        (np.zeros((800, 2)), 16_000, "must be 16 kHz mono"),
        (np.full(800, np.nan), 16_000, "holds NaN or infinity"),
    ):
        soundfile.write(tmp_path / "a.wav", sound, rate, subtype="FLOAT")
        with pytest.raises(DeltakwtError, match=rf"a\.wav: .*{reason}"):
            read_sound(tmp_path, *read_saved(tmp_path))
    (tmp_path / "a.wav").unlink()
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(DeltakwtError, match=r"a\.wav: not a regular file"):
        read_sound(tmp_path, *read_saved(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(EVENT | {"clip": "soon"}).encode(),
        json.dumps(EVENT | {"clip": [1]}).encode(),
        json.dumps(EVENT).replace("0.5", "1e999").encode(),
        json.dumps(EVENT | {"clip": 1e308}).encode(),
        json.dumps(EVENT | {"start": {}}).encode(),
        json.dumps(EVENT | {"score": None}).encode(),
        json.dumps(EVENT | {"file": 7}).encode(),
        json.dumps(EVENT | {"score": 10**400}).encode(),
        b'{"file": "\xff"}',
        b"[" * 60_000,
        b"[" * 100_000,
        b"7",
        b"{",
    ],
)
@pytest.mark.parametrize("name", ["events.jsonl", "reviewed.jsonl"])
def test_broken_files_give_one_line(tmp_path: Path, line: bytes, name: str) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(32_000), 16_000)
    (tmp_path / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    if name == "reviewed.jsonl" and b'"label"' in line:
        line = line.replace(b'"label": "yes"', b'"label": 1e999')
    (tmp_path / name).write_bytes(line + b"\n")
    problem = "( is not an|: not valid JSON|: must hold|: too long)"
    with pytest.raises(DeltakwtError, match=rf"{name}: line 1{problem}"):
        unreviewed(tmp_path)


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import load
from deltakwt.listen import Event, Spotter
from deltakwt.listen.saved import EventWriter
spotter = Spotter(load(sys.argv[2]))
writer = EventWriter(Path(sys.argv[1]), spotter, {})
spotter.push(np.zeros(48_000))
writer.add(Event("yes", 0.9, 1.0, 1.5, 1.6, 0.5))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    writer.update()
except DeltakwtError as error:
    print(error)
"""


@pytest.mark.parametrize(("limit", "index"), [(30_000, 0), (65_000, 64_990)])
def test_a_full_disk_leaves_no_sound_without_its_line(
    random_model: Path, tmp_path: Path, limit: int, index: int
) -> None:
    """The write fails in the WAV file, or in the index after it."""
    before = b"\n" * index
    (tmp_path / "events.jsonl").write_bytes(before)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(random_model), str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert list(tmp_path.glob("*.wav")) == []
    assert (tmp_path / "events.jsonl").read_bytes() == before


def run_review(folder: Path, answers: str):  # type: ignore[no-untyped-def]
    return subprocess.run(
        [sys.executable, "-m", "deltakwt", "review", str(folder), "--no-play"],
        input=answers,
        capture_output=True,
        text=True,
        timeout=60,
    )
