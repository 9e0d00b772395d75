"""`deltakwt train` and `deltakwt data` as a user types them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deltakwt.cli import build
from deltakwt.cli.running import run
from deltakwt.train import checkpoint, loop


def deltakwt(*words: str | Path) -> int:
    return run(build(), [str(word) for word in words])


def test_a_model_is_trained_and_described_as_json(
    toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--shape", "16,2,32,2", "--words", "low, high", "--epochs", "1", "--batch", "16")
    out = tmp_path / "run"
    assert deltakwt("train", "--data", toy_data, "--out", out, *options, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["training"]["plan"]["labels"] == ["_silence_", "_unknown_", "low", "high"]
    assert json.loads((out / "config.json").read_text())["training"] == document["training"]


def test_speech_sounds_and_rooms_are_folders_on_the_command_line(
    toy_data: Path,
    toy_speech: Path,
    toy_sounds: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "SPEECH_CUTS", 50)
    options = ("--shape", "16,1,32,2", "--words", "low, high", "--epochs", "1", "--batch", "16")
    folders = ("--speech", toy_speech, "--sounds", toy_sounds, "--rooms", "noise")
    out = tmp_path / "run"
    assert deltakwt("train", "--data", toy_data, "--out", out, *options, *folders) == 0
    assert "false accepts on cuts of speech" in capsys.readouterr().out
    plan = checkpoint.load(out)[0]
    assert plan.speech == (str(toy_speech),)
    assert plan.speech_share > 0


def test_a_source_is_stated_and_described(
    toy_sounds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(toy_sounds, tmp_path / "sounds")
    assert deltakwt("data", "info", folder) == 0
    assert "40 recordings" in (said := capsys.readouterr().out)
    assert "licence not stated" in said
    assert deltakwt("data", "source", folder, "--name", "Crackle", "--licence", "CC0") == 0
    capsys.readouterr()
    assert deltakwt("data", "info", folder, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["source"]["licence"] == "CC0"
    assert document["hours"] == pytest.approx(40 * 2.5 / 3600)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--words", "low"], "give --data FOLDER"),
        (["--data", "nowhere"], "nowhere: no such data folder"),
        (["--data", "DATA", "--size", "kwt-9"], "--size kwt-9: the sizes are kwt-0"),
        (["--data", "DATA", "--words", "low,,high"], "give words of letters"),
        (["--data", "DATA", "--words", "low,low"], "a word appears twice"),
        (["--data", "DATA", "--words", "missing"], "'missing': 0 training clips"),
        (["--data", "DATA", "--words", "low", "--delta", "0.2_x"], "thresholds '0.2_x'"),
        (["--data", "DATA", "--words", "low", "--teacher", "nobody"], "nobody: no such model"),
        (["--data", "DATA", "--words", "low", "--mac-penalty", "1"], "give them with --delta"),
        (["--data", "DATA", "--words", "low", "--from", "a", "--grow", "b"], "exclude each other"),
        (["--data", "DATA", "--shape", "30,4,64,2"], "HEADS (4) must divide DIM (30)"),
        (["--data", "DATA", "--shape", "8,1,8,1", "--size", "kwt-0"], "exclude each other"),
        (["--data", "DATA", "--words", "low", "--speech", "nowhere"], "nowhere: no such folder"),
        (["--data", "DATA", "--words", "low", "--rooms", "nowhere"], "nowhere: no such folder"),
        (["--data", "DATA", "--words", "low", "--hints", "kwt-3"], "must be narrower"),
        (["--data", "DATA", "--words", "low", "--layerwise", "0.5"], "exactly one --teacher"),
        (["--data", "DATA", "--words", "low", "--stride", "4"], "--stride 4: must be 1 to 3"),
        (
            ["--data", "DATA", "--size", "kwt-3", "--stride", "2", "--hints", "kwt-1"],
            "--hints: the model has a stride of 1, the one to train 2",
        ),
        (
            ["--data", "DATA", "--words", "low", "--device", "abacus"],
            "--device abacus: not",
        ),
    ],
)
def test_what_cannot_be_trained_ends_in_one_line(
    toy_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    line: str,
) -> None:
    options = [str(toy_data) if option == "DATA" else option for option in options]
    assert deltakwt("train", "--out", tmp_path / "run", *options) == 2
    said = capsys.readouterr().err
    assert line in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_run_and_says_how_to_continue(
    toy_data: Path, tmp_path: Path, number: int
) -> None:
    command = [sys.executable, "-m", "deltakwt", "train", "--out", "run", "--data", str(toy_data)]
    command += ["--words", "low,high", "--epochs", "500", "--batch", "16", "--threads", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = process.stderr.readline()  # printed after the first step
    process.send_signal(number)
    rest = process.communicate(timeout=60)[1]
    assert "epoch 0/500" in first
    assert "deltakwt train --resume --out run" in rest
    assert process.returncode == 128 + number
    plan, state = checkpoint.load(tmp_path / "run")
    assert plan.epochs == 500
    assert 0 < state.step < 20


def test_a_kill_leaves_no_half_written_checkpoint(toy_data: Path, tmp_path: Path) -> None:
    script = tmp_path / "often.py"
    script.write_text(
        "from deltakwt.train import loop\n"
        "from deltakwt.cli import main\n"
        "loop.CHECKPOINT_SECONDS = 0.0\n"
        "main()\n"
    )
    command = [sys.executable, str(script), "train", "--out", "run", "--data", str(toy_data)]
    command += ["--words", "low,high", "--batch", "16", "--threads", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    written = tmp_path / "run" / checkpoint.NAME
    deadline = time.monotonic() + 60
    while not written.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.load(tmp_path / "run")[1].step > 0


@pytest.mark.skipif(not shutil.which("espeak-ng"), reason="needs espeak-ng")
def test_new_words_from_synthetic_speech_are_spotted_in_unseen_voices(
    tmp_path: Path, trained: str
) -> None:
    """The walk-through of docs/custom-keywords.md, with fewer voices and epochs."""
    import numpy as np

    from deltakwt.core.model import load
    from deltakwt.data import synth
    from deltakwt.data.speech_commands import split_of
    from deltakwt.train.plan import plan_from_model, with_synthetic_speech
    from deltakwt.train.training import TrainingRequest, train

    words = ("lights", "hey robot")
    synth.speak(words, tmp_path / "speech", takes=1, others=300)
    plan = plan_from_model(
        epochs=8,
        rate=1e-3,
        labels=("_silence_", "_unknown_", *words),
        data=(str(tmp_path / "speech"),),
        batch=16,
    )
    plan = replace(with_synthetic_speech(plan), token_groups=((0.8, 3),))  # faster
    request = TrainingRequest(tmp_path / "model", plan, start=trained, threads=1)
    assert train(request) is not None
    model = load(tmp_path / "model")
    files = [file for file in (tmp_path / "speech").rglob("*.wav") if split_of(file.name) == "test"]
    pairs = [(file.parent.name, model(file).label) for file in files]
    right = [said == answer for said, answer in pairs if said in words]
    rejected = [answer not in words for said, answer in pairs if said not in words]
    assert len(right) > 10
    assert np.mean(right) > 0.9
    assert np.mean(rejected) > 0.85
    assert model(np.zeros(16_000, np.float32)).label == "_silence_"
