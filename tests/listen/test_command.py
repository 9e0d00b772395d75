"""`deltakwt listen` as it is used: files, pipes, hooks, JSON, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from listen.speech import Speech

COMMAND = [sys.executable, "-m", "deltakwt", "listen", "--threshold", "0.6"]


@pytest.fixture(scope="module")
def recording(speech: Speech, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "words.wav"
    soundfile.write(path, speech.sound, 16_000)
    return path


def listen(
    trained: str, *arguments: object, data: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, "--model", trained, "--profile", "dense", *map(str, arguments)],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        timeout=120,
    )


def words(output: bytes) -> list[str]:
    lines = [json.loads(line) for line in output.splitlines()]
    return [line["label"] for line in lines if line["event"] == "word"]


def test_a_file_fast_in_json_with_hooks_saved_events_and_second_stage(
    trained: str, recording: Path, speech: Speech, tmp_path: Path
) -> None:
    code = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
    hook = f"left={sys.executable} -c '{code}' {tmp_path / 'left'}"
    run = listen(
        trained, "--input", recording, "--fast", "--json", "--on", hook, "--verify", "dense",
        "--save-events", tmp_path / "events",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert words(run.stdout) == list(speech.words)
    end = json.loads(run.stdout.splitlines()[-1])
    assert end["event"] == "end"
    assert end["words"] == end["verified"] == 3
    assert end["hooks"] == {"done": 1}
    assert end["meter"]["ever"]["seconds"] == pytest.approx(9, abs=0.2)  # with the ending
    assert (tmp_path / "left").exists()
    assert len(list((tmp_path / "events").glob("*.wav"))) == 3


def test_plain_lines_and_a_summary(trained: str, recording: Path, speech: Speech) -> None:
    run = listen(trained, "--input", recording, "--fast")
    assert [line.split()[2] for line in run.stdout.decode().splitlines()] == list(speech.words)
    assert b"of the dense MACs" in run.stderr


def test_stdin_raw_and_wav(trained: str, recording: Path, speech: Speech) -> None:
    raw = (speech.sound * 32767).astype("<i2").tobytes()
    assert words(listen(trained, "--input", "-", "--json", data=raw).stdout) == list(speech.words)
    stereo = np.repeat(speech.sound, 2).astype("<f4").tobytes()
    options = ("--raw-format", "f32", "--raw-channels", "2", "--json")
    run = listen(trained, "--input", "-", *options, data=stereo)
    assert words(run.stdout) == list(speech.words)
    run = listen(trained, "--input", "-", "--json", data=recording.read_bytes())
    assert words(run.stdout) == list(speech.words)


def test_nan_in_a_pipe_is_reported_and_skipped(trained: str, speech: Speech) -> None:
    sound = speech.sound.copy()
    sound[100:110] = np.nan
    run = listen(
        trained, "--input", "-", "--raw-format", "f32", "--json", data=sound.astype("<f4").tobytes()
    )
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert "NaN" in next(line["message"] for line in lines if line["event"] == "message")
    assert lines[-1]["rejected_blocks"] >= 1
    assert lines[-1]["meter"]["ever"]["seconds"] == pytest.approx(9, abs=0.2)  # time went on
    assert words(run.stdout)[-1] == "stop"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_run_cleanly(
    trained: str, recording: Path, number: signal.Signals
) -> None:
    command = [*COMMAND, "--model", trained, "--profile", "dense", "--json"]
    run = subprocess.Popen(
        [*command, "--input", str(recording)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert b'"yes"' in run.stdout.readline()  # it listens
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["event"] == "end"
    assert err == b""


def test_a_closed_pipe_ends_a_run_quietly(trained: str, recording: Path) -> None:
    command = [*COMMAND, "--model", trained, "--profile", "dense", "--json"]
    run = subprocess.Popen(
        [*command, "--input", str(recording)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    begun = time.monotonic()
    assert run.wait(60) == 0
    assert run.stderr.read() == b""
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "gone.wav"), b"gone.wav: no such file"),
        (("--fast",), b"give --input"),
        (("--input", "x", "--on", "hello=ls"), b"does not know 'hello'"),
        (("--input", "x", "--hop", "0.001"), b"hop = 0.001: must be"),
        (("--input", "x", "--threshold", "7"), b"on = 7.0: must be"),
        (("--input", "-", "--raw-format", "mp3"), b"sample format 'mp3'"),
        (("--input", "x", "--verify", "nonsense"), b"nonsense: no such model"),
        (("--input", "x", "--raw-rate", "-5"), b"sample rate -5 Hz"),
        (("--input", "/dev/zero"), b"/dev/zero: not a regular file; pipe a stream into"),
        (("--input", "/dev/zero", "--fast"), b"/dev/zero: not a regular file; pipe a stream into"),
    ],
)
def test_mistakes_get_one_line(trained: str, arguments: tuple[str, ...], message: bytes) -> None:
    run = listen(trained, *arguments, data=b"")
    assert run.returncode == 2
    assert message in run.stderr
    assert run.stderr.count(b"\n") == 1


def test_a_fifo_is_refused_at_once(trained: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = listen(trained, "--input", tmp_path / "pipe")
    assert run.returncode == 2
    assert b"not a regular file" in run.stderr


def test_a_source_that_ends_early_is_a_failure(trained: str, recording: Path) -> None:
    run = listen(trained, "--input", "-", "--json", data=b"")
    assert run.returncode == 1
    assert b"stdin: ended without sound" in run.stderr
    assert json.loads(run.stdout.splitlines()[-1])["event"] == "end"
    part = recording.read_bytes()[:200_000]
    run = listen(trained, "--input", "-", "--json", data=part)
    assert run.returncode == 1
    assert b"stdin: ended early, after 199956 of 256000 bytes" in run.stderr
    assert words(run.stdout) == ["yes", "left", "stop"][: len(words(run.stdout))] != []


def test_a_second_stage_can_be_another_model(trained: str, recording: Path, speech: Speech) -> None:
    run = listen(trained, "--input", recording, "--fast", "--json", "--verify", "kwt-3")
    assert words(run.stdout) == list(speech.words)
    assert json.loads(run.stdout.splitlines()[-1])["verified"] == 3


def test_spot_and_listen_print_the_same_words(trained: str, recording: Path) -> None:
    """`listen` reads its own blocks; `spot` prints a small document per file."""
    common = ("--model", trained, "--json")
    command = [sys.executable, "-m", "deltakwt"]
    spotted = subprocess.run(
        [*command, "spot", *common, str(recording)], capture_output=True, timeout=120
    )
    (document,) = json.loads(spotted.stdout)
    assert set(document) == {
        "file", "events", "ms", "seconds", "windows", "reused", "macs_percent", "macs_per_second"
    }  # fmt: skip
    run = subprocess.run(
        [*command, "listen", *common, "--fast", "--input", str(recording)],
        capture_output=True,
        timeout=120,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    events = [line for line in lines if line.pop("event") == "word"]
    for event in events:
        assert event.pop("wall_time").endswith("Z")  # only a live source has it
    assert events == document["events"]
    full = subprocess.run(
        [*command, "spot", *common, "--json=full", "--", str(recording)],
        capture_output=True,
        timeout=120,
    )
    (whole,) = json.loads(full.stdout)
    assert set(whole) - set(document) == {"macs", "bytes"}


def test_spot_is_silent_when_the_pipe_closes(trained: str, recording: Path) -> None:
    files = " ".join([str(recording)] * 40)
    command = f"{sys.executable} -m deltakwt spot --json --model {trained} {files}"
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"], capture_output=True, timeout=120
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, b"[\n", b"")
