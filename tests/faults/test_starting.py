"""A signal while a thread, a process or a program is started: nothing hangs, nothing is lost.

`with condition:` is Python code for a `threading.Condition`. A signal just after its lock was taken
leaves it locked. That moment is brief, so the tests send the signal exactly then.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import CLIPS
from faults.programs import Program

from deltakwt.listen.decision import Event
from deltakwt.listen.hooks import Hooks
from deltakwt.listen.saved import EventWriter
from deltakwt.workers import in_threads

INTERRUPTED_LOCK = """
import os, signal, sys, threading
enter, main = threading.Condition.__enter__, threading.get_ident()
armed = [int(sys.argv[1])]  # which use of a condition by the main thread is hit
def interrupted(self):
    got = enter(self)
    if threading.get_ident() == main:
        armed[0] -= 1
        if armed[0] == 0:
            signal.raise_signal(signal.SIGINT)
    return got
"""
SYNTH = """
from pathlib import Path
from deltakwt.data import synth
synth.shutil.which = lambda name: name
synth.voices = lambda program: ["en-us+m1"]
synth._say = lambda *job: None
synth.write_source = lambda *source: None
threading.Condition.__enter__ = interrupted
synth.speak(["yes"], Path("unused"), takes=200, others=0)
"""
EVAL = """
from types import SimpleNamespace
from deltakwt.data import speech_commands
speech_commands.read = lambda manifest, clip: __import__("numpy").zeros(4)
threading.Condition.__enter__ = interrupted
for _ in speech_commands.batches(SimpleNamespace(clips=list(range(200))), 32, 2, print):
    pass
"""


@pytest.mark.parametrize("program", [SYNTH, EVAL], ids=["synth", "eval"])
@pytest.mark.parametrize("use", [1, 2, 3, 100])
def test_a_signal_in_a_lock_ends_the_threads(program: str, use: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED_LOCK + program, str(use)]
    done = subprocess.run(command, timeout=20, capture_output=True, text=True)
    stopped = done.stderr.endswith("KeyboardInterrupt\n") and done.returncode == -signal.SIGINT
    assert stopped or done.returncode == 0, done.stderr  # or no lock was left to be hit


def test_results_come_in_order_and_errors_in_their_turn() -> None:
    def half(number: int) -> float:
        time.sleep(0.001 * (number % 3))
        if number == 20:
            raise ValueError("20")
        return number / 2

    with closing(in_threads(half, range(40), 4, 8)) as found:
        assert list(islice(found, 20)) == [number / 2 for number in range(20)]
        with pytest.raises(ValueError, match="20"):
            next(found)
    assert list(in_threads(half, [], 4, 8)) == []


def test_threads_without_memory_for_an_answer_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class FullQueue(SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise MemoryError
            super().put(item)

    monkeypatch.setattr("deltakwt.workers.SimpleQueue", FullQueue)
    monkeypatch.setattr("deltakwt.workers.PATIENCE", 0.1)
    with pytest.raises(MemoryError, match="every thread ended"):
        list(in_threads(abs, range(8), threads=2, ahead=4))


def test_fewer_threads_where_the_system_refuses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def refusing(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    assert list(in_threads(abs, range(-9, 0), 8, 4)) == list(range(9, 0, -1))


@pytest.fixture
def signal_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], None]:
    """Return a function that sends SIGINT to this process at the begin of another one's call."""

    def prepare(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def hit(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, hit)

    return prepare


EVENT = Event("yes", 0.9, 0.0, 0.5, 1.0, 0.0)


def test_a_command_that_was_just_started_is_killed(
    signal_in: Callable[[Any, str], None], tmp_path: Path
) -> None:
    """It would go on after the end of `listen`, or the run would end with an error."""
    ran = tmp_path / "ran"
    hooks = Hooks({"yes": ["sh", "-c", f"sleep 1; touch {ran}"]}, 60, print)
    signal_in(threading.Thread, "start")
    with pytest.raises(KeyboardInterrupt):
        hooks.fire(EVENT)
    hooks.close(kill=True)
    time.sleep(1.5)
    assert not ran.exists()


@pytest.mark.parametrize("place", ["write_atomically", "append_line", "_free_name"])
def test_an_event_that_is_being_saved_is_saved(
    signal_in: Callable[[Any, str], None], tmp_path: Path, place: str
) -> None:
    from deltakwt.listen import saved

    sound = np.zeros(32_000, np.float32)
    spotter: Any = SimpleNamespace(seconds=9.0, sound=lambda start, end: sound)
    writer = EventWriter(tmp_path, spotter, {})
    other = Event("no", 0.9, 1.0, 1.5, 2.0, 1.0)
    writer.add(EVENT)
    writer.add(other)
    signal_in(saved, place)
    with pytest.raises(KeyboardInterrupt):
        writer.update()
    writer.update(has_ended=True)  # as at the end of every run
    lines = [json.loads(line) for line in (tmp_path / saved.INDEX).read_text().splitlines()]
    assert [line["label"] for line in lines] == ["yes", "no"]
    assert {path.name for path in tmp_path.glob("*.wav")} == {line["file"] for line in lines}


def sees_ctrl_c(process: str) -> bool:
    """Return whether SIGINT reaches a process: it is neither blocked nor ignored."""
    status = Path(f"/proc/{process}/status").read_text()
    masks = re.findall(r"^Sig(?:Blk|Ign):\s*(\w+)", status, re.MULTILINE)
    return not any(int(mask, 16) >> (signal.SIGINT - 1) & 1 for mask in masks)


def test_ctrl_c_does_not_reach_workers_that_start(small_model: Path, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to the workers too; each would show where it was interrupted."""
    names = tmp_path / "names.txt"
    names.write_text(f"{CLIPS / 'yes.flac'}\n" * 400)
    command = ("spot", names, "--out", tmp_path / "events.jsonl", "-m", small_model)
    program = Program(*command, "--threads", 2, before=os.setsid)
    process = program.process.pid
    children = Path(f"/proc/{process}/task/{process}/children")
    program.wait_until(lambda: len(children.read_text().split()) == 3)  # with Python's own
    assert not any(map(sees_ctrl_c, children.read_text().split()))
    os.killpg(process, signal.SIGINT)
    assert program.end() == 130
    assert program.err.count("\n") == 1, program.err
