"""Faults while listening: a second stage that raises, a hook that floods, a source that ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import CLIPS
from faults.programs import Program, assert_one_line, run
from numpy.typing import NDArray

from deltakwt.core.model import load
from deltakwt.listen.decision import Event
from deltakwt.listen.spotter import Spotter


def sentence() -> NDArray[np.float32]:
    """Return the samples of several words."""
    sound, rate = soundfile.read(CLIPS / "sentence.flac", dtype="float32")
    assert rate == 16_000
    return np.concatenate([sound, np.zeros(16_000, np.float32)])


def test_a_second_stage_that_raises_loses_its_own_event_only(trained: str) -> None:
    """The error reaches the caller of `push`, who can go on with the next block."""
    model, sound = load(trained), sentence()
    blocks = [sound[start : start + 1600] for start in range(0, len(sound), 1600)]
    plain = Spotter(model)
    expected = [event for block in blocks for event in plain.push(block)]
    assert len(expected) >= 2
    asked: list[Event] = []

    def fail_once(event: Event, window: NDArray[np.float32]) -> bool:
        asked.append(event)
        if len(asked) == 1:
            raise RuntimeError("no connection to the second stage")
        return True

    spotter, found, raised = Spotter(model, verify=fail_once), [], 0
    for block in blocks:
        try:
            found += spotter.push(block)
        except RuntimeError:
            raised += 1
    assert raised == 1
    assert asked == expected
    assert found == expected[1:]
    assert spotter.seconds == plain.seconds
    assert spotter.verified == len(expected) - 1


FLOOD = "import sys\nwhile True: sys.stdout.write('x' * 65536); sys.stderr.write('y' * 65536)"


def test_a_hook_that_floods_its_output_disturbs_nobody(trained: str, tmp_path: Path) -> None:
    """Nobody reads its output, so it blocks; it is killed at its limit, and listening goes on."""
    (tmp_path / "flood.py").write_text(FLOOD)
    sound = CLIPS / "sentence.flac"
    quiet = run("listen", "--model", trained, "--input", sound, "--fast", "--json")
    words = [json.loads(line) for line in quiet.out.splitlines() if '"word"' in line]
    read, write = os.pipe()
    hook = f"{words[0]['label']}={sys.executable} {tmp_path / 'flood.py'}"
    command = Program.command("listen", "--model", trained, "--input", sound, "--fast", "--json")
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [*command, "--on", hook, "--hook-limit", "1"],
            stdout=subprocess.PIPE,
            stderr=write,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]  # not a byte of the flood
    found = [line for line in lines if line["event"] == "word"]
    for word in (*found, *words):
        del word["wall_time"]  # of another run
    assert found == words
    assert lines[-1]["hooks"]["killed"] >= 1
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (b"", "stdin: ended without sound"),
        (b"\0", "stdin: ended without sound"),
        ("half", "stdin: ended early"),
    ],
)
def test_a_source_that_ends_early_is_a_failed_run(
    trained: str, tmp_path: Path, feed: bytes | str, message: str
) -> None:
    """Exit code 1, so that systemd's Restart=on-failure starts it again."""
    if feed == "half":
        soundfile.write(tmp_path / "whole.wav", sentence(), 16_000)
        feed = (tmp_path / "whole.wav").read_bytes()[:40_000]
    done = subprocess.run(
        Program.command("listen", "--model", trained, "--input", "-", "--json"),
        input=feed,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert message in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "end"


def test_a_file_that_is_cut_short_is_a_failed_run(trained: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "whole.wav", sentence(), 16_000)
    path = tmp_path / "short.wav"
    path.write_bytes((tmp_path / "whole.wav").read_bytes()[:100_000])
    done = run("listen", "--model", trained, "--input", path, "--fast", "--json")
    assert_one_line(done, 1, "short.wav: truncated")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[-1]["event"] == "end"
    assert lines[-1]["meter"]["ever"]["seconds"] > 3
