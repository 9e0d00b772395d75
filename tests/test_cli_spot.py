"""`deltakwt spot` through its real entry point: tables, JSON, and files of every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS, Run
from test_audio import broken_files
from test_cli import one_line

from deltakwt.core.config import KEYWORDS


def test_spot_prints_a_table(deltakwt: Run, trained: str) -> None:
    done = deltakwt("spot", CLIPS / "yes.flac", CLIPS / "silence.flac", "--model", trained)
    assert done.returncode == 0
    assert done.stderr == ""
    assert all(word in done.stdout for word in ("file", "word", "score", "ms", "yes.flac"))


def test_spot_json(deltakwt: Run, arm_kwt1: Path) -> None:
    files = [str(CLIPS / f"{word}.flac") for word in (*KEYWORDS, "marvin", "silence")]
    done = deltakwt("spot", *files, "--model", arm_kwt1, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert [entry["file"] for entry in found] == files
    for word, entry in zip(KEYWORDS, found, strict=False):
        (event,) = entry["events"]
        assert event["label"] == word
        assert 0 < event["score"] <= 1
        assert (event["start"], event["end"]) == (0, 1)
        assert entry["ms"] > 0
    assert [entry["events"] for entry in found[10:]] == [[], []]


def test_spot_finds_the_words_of_a_longer_recording(deltakwt: Run, trained: str) -> None:
    done = deltakwt("spot", CLIPS / "sentence.flac", "--json", DELTAKWT_MODEL=trained)
    (entry,) = json.loads(done.stdout)
    said = {"go": 0.6, "left": 2.0, "stop": 4.8, "yes": 6.2}  # examples/make_clips.py
    assert [event["label"] for event in entry["events"]] == list(said)
    for event in entry["events"]:
        middle = said[event["label"]] + 0.25
        assert event["start"] - 0.2 < middle < event["end"] + 0.2


@pytest.mark.parametrize("how", ["six", "eight", "per layer"])
def test_spot_counts_macs_and_bytes_with_thresholds(
    deltakwt: Run, random_model: Path, how: str
) -> None:
    text = {
        "six": "0.2_0.2_0.2_0.05_0.001_0.05",
        "eight": "0.2_0.2_0.2_0.05_0.001_0.05_0.3_0.1",
        "per layer": "_".join([",".join(["0.1"] * 12)] * 6),
    }[how]
    arguments = ("--model", random_model, "--thresholds", text, "--json=full")
    done = deltakwt("spot", CLIPS / "yes.flac", *arguments)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    macs = entry["macs"]
    assert 0 < macs["mhsa_percent"] < 100
    assert 0 < macs["model_percent"] < 100
    assert set(macs["sites"]) == {"xw", "qkt", "sv", "proj", "mlp_in", "mlp_out"}
    assert len(macs["layers"]) == 12
    assert entry["bytes"]["total"]["bitmap"] < entry["bytes"]["total"]["dense"]


def test_spot_reports_bad_files_and_goes_on(
    deltakwt: Run, random_model: Path, tmp_path: Path
) -> None:
    bad = broken_files(tmp_path)
    files = [tmp_path / name for name in bad]
    done = deltakwt("spot", *files, CLIPS / "yes.flac", "--model", random_model, "--json")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(bad)
    for line, file, reason in zip(lines, files, bad.values(), strict=True):
        assert line.startswith(f"deltakwt: {file}: ")
        assert reason in line
    found = json.loads(done.stdout)
    assert [("error" in entry) for entry in found] == [True] * len(bad) + [False]
    done = deltakwt("spot", *files, "--model", random_model)
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (96_000, 1), (44_100, 8)])
def test_spot_takes_any_rate_and_channels(
    deltakwt: Run, trained: str, tmp_path: Path, rate: int, channels: int
) -> None:
    import soxr

    word, _ = soundfile.read(CLIPS / "left.flac", dtype="float32")
    sound = soxr.resample(word, 16_000, rate)
    soundfile.write(tmp_path / "a.wav", np.repeat(sound[:, None], channels, axis=1), rate)
    (entry,) = json.loads(deltakwt("spot", tmp_path / "a.wav", "-m", trained, "--json").stdout)
    assert [event["label"] for event in entry["events"]] == (["left"] if rate > 8_000 else ANY)


class _Any:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, list)

    __hash__ = None  # type: ignore[assignment]


ANY = _Any()  # 8 kHz lacks the upper half of what the models listen to


def test_odd_file_names_do_not_stop_the_others(random_model: Path, tmp_path: Path) -> None:
    good = (CLIPS / "yes.flac").read_bytes()
    names = [b"caf\xe9.flac", b"[/b].flac", b"[red]a.flac", b"\x1b[31m.flac", b"two\nlines.flac"]
    paths = [os.fsencode(tmp_path) + b"/" + name for name in names]
    (tmp_path / "[").mkdir()  # the folder of "[/b].flac"
    for path in paths:
        with open(path, "wb") as file:
            file.write(good)
    bad = [b"a" * 300 + b".flac", b"missing\x1b]0;title\x07.flac"]
    command = [sys.executable, "-m", "deltakwt", "spot", "-m", str(random_model)]
    done = subprocess.run([*command, *bad, *paths], capture_output=True, timeout=120)
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert "cannot be read: File name too long" in lines[0]
    assert "missing\\x1b]0;title\\x07.flac: no such file" in lines[1]
    shown = done.stdout.decode()
    for name in ("caf\\xe9.flac", "[/b].flac", "[red]a.flac", "\\x1b[31m.flac", "two\\nlines.flac"):
        assert name in shown
    assert "\x1b" not in shown
    done = subprocess.run([*command, *bad, *paths, b"--json"], capture_output=True, timeout=120)
    assert [("error" in entry) for entry in json.loads(done.stdout)] == [True] * 2 + [False] * 5


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_spot_refuses_what_is_no_file(
    deltakwt: Run, random_model: Path, tmp_path: Path, kind: str
) -> None:
    path = Path("/dev/zero")
    if kind == "fifo":
        path = tmp_path / "pipe.wav"
        os.mkfifo(path)
    done = deltakwt("spot", path, "-m", random_model)
    assert done.returncode == 2
    assert one_line(done.stderr)
    assert f"{path}: not a regular file" in done.stderr
