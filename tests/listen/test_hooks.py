"""Programs that run when a word is found: without a shell, one at a time, for a limited time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.decision import Event
from deltakwt.listen.hooks import Hooks, parse_hooks

LABELS = ("_silence_", "_unknown_", "yes", "no")


def event(label: str) -> Event:
    return Event(label, 0.9, 1.0, 1.5, 1.7, 0.8)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_commands_are_argument_lists() -> None:
    hooks = parse_hooks(["yes=say 'two words' $HOME;ls", "no=a=b"], LABELS)
    assert hooks == {"yes": ["say", "two words", "$HOME;ls"], "no": ["a=b"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maybe=ls", "does not know 'maybe'; it knows yes, no"),
        ("_silence_=ls", "does not know"),
        ("yes", "write WORD=COMMAND"),
        ("yes= ", "write WORD=COMMAND"),
        ("yes='ls", "no closing quotation"),
    ],
)
def test_bad_hooks_are_refused(text: str, message: str) -> None:
    with pytest.raises(DeltakwtError, match=message):
        parse_hooks([text], LABELS)


def test_a_word_has_one_command() -> None:
    with pytest.raises(DeltakwtError, match="already has a command"):
        parse_hooks(["yes=a", "yes=b"], LABELS)


def test_no_shell_sees_the_command_and_it_knows_the_event(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text("
        "sys.argv[2] + os.environ['DELTAKWT_WORD'] + os.environ['DELTAKWT_SCORE'])"
    )
    out = tmp_path / "out"
    hooks = Hooks({"yes": python(code, str(out), "$(id);")}, 20, print)
    hooks.fire(event("yes"))
    hooks.fire(event("no"))  # has none
    hooks.close(kill=False)
    assert out.read_text() == "$(id);yes0.9000"
    assert hooks.counts == {"done": 1}


def test_one_at_a_time_for_a_word(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(.01)"
    )
    go = tmp_path / "go"
    hooks = Hooks(dict.fromkeys(("yes", "no"), python(code, str(go))), 30, print)
    for word in ("yes", "yes", "yes", "no"):
        hooks.fire(event(word))
    assert hooks.counts == {"skipped": 2}
    go.touch()
    until(lambda: hooks.counts["done"] == 2)
    hooks.fire(event("yes"))  # free again
    hooks.close(kill=False)
    assert hooks.counts == {"skipped": 2, "done": 3}


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    child = f"import time, pathlib; pathlib.Path({str(mark)!r}).touch(); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    messages: list[str] = []
    hooks = Hooks({"yes": python(code)}, 1.5, messages.append)
    begun = time.monotonic()
    hooks.fire(event("yes"))
    assert time.monotonic() - begun < 1  # the stream does not wait
    hooks.close(kill=False)
    assert hooks.counts == {"killed": 1}
    assert messages == ["--on yes: the command was killed after 1.5 s"]


def test_closing_can_kill(tmp_path: Path) -> None:
    hooks = Hooks({"yes": python("import time; time.sleep(60)")}, 60, print)
    hooks.fire(event("yes"))
    begun = time.monotonic()
    hooks.close(kill=True)
    assert time.monotonic() - begun < 20
    assert hooks.counts.total() == 1


def test_failed_commands_are_reported_and_forgotten() -> None:
    messages: list[str] = []
    hooks = Hooks(
        {"yes": python("raise SystemExit(3)"), "no": ["/nonexistent/x"]}, 20, messages.append
    )
    hooks.fire(event("yes"))
    hooks.fire(event("no"))
    hooks.close(kill=False)
    assert hooks.counts == {"failed": 2}
    assert sorted(messages)[1] == "--on yes: the command ended with status 3"
    assert "/nonexistent/x" in sorted(messages)[0]
