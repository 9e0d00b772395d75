"""`--on WORD=COMMAND`: programs that run when a word is found.

The command is not passed to a shell. Each word runs at most one program at a time: if the word is
found again while its program runs, this is counted and nothing is queued. A program that exceeds
its time limit is killed together with everything it started.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.decision import Event
from deltakwt.locks import signals_deferred


def parse_hooks(texts: Iterable[str], labels: Sequence[str]) -> dict[str, list[str]]:
    """Return {"yes": ["notify-send", "hello"]} for "yes=notify-send hello"."""
    hooks: dict[str, list[str]] = {}
    for text in texts:
        word, _, command = text.partition("=")
        if word not in labels or word.startswith("_"):
            words = ", ".join(label for label in labels if not label.startswith("_"))
            raise DeltakwtError(f"--on {text}: the model does not know {word!r}; it knows {words}")
        try:
            arguments = shlex.split(command)
        except ValueError as error:
            raise DeltakwtError(f"--on {text}: {error}".lower()) from None
        if not arguments:
            raise DeltakwtError(f"--on {text}: write WORD=COMMAND, as in --on yes='say hello'")
        if word in hooks:
            raise DeltakwtError(f"--on {text}: {word!r} already has a command")
        hooks[word] = arguments
    return hooks


class Hooks:
    """Starts the programs and counts how they end."""

    def __init__(
        self, commands: Mapping[str, list[str]], limit: float, tell: Callable[[str], None]
    ) -> None:
        self._commands, self._limit, self._tell = dict(commands), limit, tell
        self._lock = threading.Lock()
        self._running: dict[str, tuple[threading.Thread, subprocess.Popen[bytes]]] = {}
        self.counts: Counter[str] = Counter()  # "done", "failed", "killed", "skipped"

    def fire(self, event: Event) -> None:
        """Start the word's command unless it is still running, and return at once."""
        arguments = self._commands.get(event.label)
        if arguments is None:
            return
        with signals_deferred(), self._lock:  # a program that has started is known to `close`
            if event.label in self._running:
                self.counts["skipped"] += 1
                return
            try:
                program = subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # our stdout may be JSON for a program
                    env=os.environ | _described(event),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                self.counts["failed"] += 1
                reason = getattr(error, "strerror", None) or error
                self._tell(f"--on {event.label}: {arguments[0]}: {reason}")
                return
            waiter = threading.Thread(target=self._wait, args=(event.label, program), daemon=True)
            self._running[event.label] = waiter, program
            waiter.start()

    def close(self, kill: bool) -> None:
        """Wait for the programs that still run (at most their time limit), or kill them."""
        with self._lock:
            running = list(self._running.values())
        for waiter, program in running:
            if kill:
                _kill(program)
            waiter.join()

    def _wait(self, word: str, program: subprocess.Popen[bytes]) -> None:
        try:
            code = program.wait(self._limit)
            ending = "failed" if code else "done"
        except subprocess.TimeoutExpired:
            _kill(program)
            program.wait()
            code, ending = 0, "killed"
        if code:
            self._tell(f"--on {word}: the command ended with status {code}")
        elif ending == "killed":
            self._tell(f"--on {word}: the command was killed after {self._limit:g} s")
        with self._lock:
            self.counts[ending] += 1
            del self._running[word]


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill the program and everything it started, which is in its session; on Windows, it alone."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            program.kill()
        else:
            os.killpg(program.pid, signal.SIGKILL)


def _described(event: Event) -> dict[str, str]:
    """Return the environment variables that describe the event."""
    return {
        "DELTAKWT_WORD": event.label,
        "DELTAKWT_SCORE": f"{event.score:.4f}",
        "DELTAKWT_START": f"{event.start:.3f}",
        "DELTAKWT_END": f"{event.end:.3f}",
    }
