"""`deltakwt listen` as a service: log lines, SIGHUP, messages to systemd, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CLIPS
from listen.speech import Speech

from deltakwt.audio import one_clip
from deltakwt.core.model import Model, load
from deltakwt.listen.decision import Event
from deltakwt.listen.spotter import Spotter
from deltakwt.weights.registry import resolve


class Listening:
    """`deltakwt listen` with a pipe for raw sound, and its log."""

    def __init__(self, folder: Path, *arguments: object, **environment: str) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "deltakwt", "listen", "--input", "-", "--log", "json"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **environment},
            )
        assert self.process.stdin is not None
        self.stdin = self.process.stdin

    def say(self, sound: np.ndarray) -> None:
        self.stdin.write((sound * 32767).astype("<i2").tobytes())
        self.stdin.flush()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def wait_for(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Feed silence until a log line comes."""
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            for line in self.lines():
                if is_it(line):
                    return line
            assert self.process.poll() is None, self.log.read_text()
            self.say(np.zeros(1_600))
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())

    def end(self, number: int | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        try:
            self.process.communicate(timeout=60)
            return self.process.returncode
        finally:
            self.process.kill()


@pytest.fixture
def own_model(trained: str, tmp_path: Path) -> Path:
    """A copy of a trained model, whose settings can be changed."""
    shutil.copytree(resolve(trained), tmp_path / "model")
    return tmp_path / "model"


def word_line(line: dict[str, Any]) -> bool:
    return line["message"] == "word"


def change_decision(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    document = json.loads(path.read_text())
    document["decision"] = {**document.get("decision", {}), **values}
    path.write_text(json.dumps(document))


def test_a_hang_up_reads_the_settings_again(own_model: Path, tmp_path: Path) -> None:
    """The stream goes on: later words have later times. A broken file changes nothing."""
    listening = Listening(tmp_path, "--model", own_model)
    clip = one_clip(CLIPS / "yes.flac")
    quiet = np.random.default_rng(1).normal(0, 1e-3, 24_000)
    try:
        listening.say(np.concatenate([quiet, clip, quiet]))
        first = listening.wait_for(word_line)
        assert first["label"] == "yes"
        assert first["level"] == "info"
        assert first["timestamp"].endswith("Z")

        change_decision(own_model, words={"yes": 1.0}, on=1.0)
        listening.process.send_signal(signal.SIGHUP)
        listening.wait_for(lambda line: line["message"] == "reloaded")
        listening.say(np.concatenate([quiet, clip, quiet]))  # no score is above 1

        (own_model / "config.json").rename(own_model / "kept")
        (own_model / "config.json").write_text("{")
        listening.process.send_signal(signal.SIGHUP)
        failed = listening.wait_for(lambda line: "reload failed" in line["message"])
        assert "config.json" in failed["message"]
        assert failed["level"] == "warning"

        (own_model / "kept").rename(own_model / "config.json")
        change_decision(own_model, words={}, on=0.6, off=0.3)
        listening.process.send_signal(signal.SIGHUP)
        listening.wait_for(
            lambda line: sum(one["message"] == "reloaded" for one in listening.lines()) == 2
        )
        listening.say(np.concatenate([quiet, clip, quiet]))
        listening.wait_for(lambda line: word_line(line) and line["start"] > first["start"] + 2)
        assert listening.end(signal.SIGTERM) == 0
    finally:
        listening.process.kill()
    words = [line for line in listening.lines() if word_line(line)]
    assert [line["label"] for line in words] == ["yes", "yes"]
    last = listening.lines()[-1]
    assert (last["message"], last["words"]) == ("ended", 2)
    assert last["seconds"] > words[1]["time"]


def test_systemd_is_told(manager: socket.socket, trained: str, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
    listening = Listening(tmp_path, "--model", trained, **environment)
    try:
        listening.say(np.zeros(16_000))
        assert manager.recv(4096) == b"READY=1"  # sound comes
        assert manager.recv(4096) == b"WATCHDOG=1"
        time.sleep(0.1)
        listening.say(np.zeros(1_600))
        assert manager.recv(4096) == b"WATCHDOG=1"
        manager.settimeout(0.3)
        with pytest.raises(TimeoutError):  # no sound, no watchdog message
            manager.recv(4096)
        assert listening.end(signal.SIGTERM) == 0
        assert manager.recv(4096) == b"STOPPING=1"
    finally:
        listening.process.kill()


def test_a_source_that_ends_early_is_a_failure_and_a_log_line(trained: str, tmp_path: Path) -> None:
    """Code 1: with Restart=on-failure systemd starts it again."""
    listening = Listening(tmp_path, "--model", trained)
    assert listening.end() == 1  # stdin closes without a sample
    last = listening.lines()[-1]
    assert last["level"] == "error"
    assert "stdin" in last["message"]


def test_a_wrong_option_is_not_started_again(tmp_path: Path) -> None:
    listening = Listening(tmp_path, "--model", tmp_path / "none")
    assert listening.end() == 2
    [line] = listening.lines()
    assert line["level"] == "error"
    listening = Listening(tmp_path, "--log", "xml")
    assert listening.end() == 2
    assert "must be text or json" in listening.log.read_text()


def test_a_stream_goes_on_with_other_settings(trained: str, speech: Speech) -> None:
    model: Model = load(trained)
    spotter = Spotter(model)
    cut = round(16_000 * (speech.words["stop"] - 0.4))  # between the second word and the third
    events: list[Event] = spotter.push(speech.sound[:cut])
    before = spotter.meter.total.macs
    spotter.restart(load(trained), setting="dense")
    events += spotter.push(speech.sound[cut:])
    events += spotter.flush()
    assert [event.label for event in events] == list(speech.words)
    for event, start in zip(events, speech.words.values(), strict=True):
        assert abs(event.start - start) < 0.5
    assert spotter.seconds == len(speech.sound) / 16_000
    assert spotter.meter.total.macs > before > 0
