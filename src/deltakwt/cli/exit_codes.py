"""The exit codes of the process, and how SIGTERM ends it. See docs/exit-codes.md."""

from __future__ import annotations

import signal

from deltakwt.core.errors import DeltakwtError, is_disk_failure

DONE = 0
FAILED = 1  # the run failed or is incomplete; the same command may succeed later
BAD_INPUT = 2  # the same command will fail again
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, DeltakwtError) and not is_disk_failure(error):
        return error.exit_code
    return FAILED


def describe(error: BaseException) -> str:
    """Return one line about an error that no command expected."""
    no_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    if isinstance(error, MemoryError) or no_thread:
        detail = f" ({error})" if str(error) else ""
        return f"not enough memory{detail}; close other programs or raise the limit"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"


def stop_on_sigterm() -> None:
    """Make SIGTERM end the program like Ctrl-C: files in progress are removed or completed."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
