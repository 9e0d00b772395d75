"""Run one command line: the options of all verbs, errors, exit codes and SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from enum import IntEnum
from typing import Any

import typer

from deltakwt.cli.common import QUIET, USUAL, VERBOSE, fail, set_level
from deltakwt.cli.options import release_folders
from deltakwt.core.errors import DeltakwtError, is_disk_failure

COMPLETION = "_DELTAKWT_COMPLETE"  # the variable with which a shell asks for completions

UsageError: Any = typer.BadParameter.__mro__[1]  # its module depends on the version of typer


class ExitCode(IntEnum):
    """The exit codes of the process. docs/exit-codes.md has examples of each."""

    DONE = 0
    FAILED = 1  # the run failed or is incomplete; the same command may succeed later
    BAD_INPUT = 2  # the same command will fail again
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the application and return the exit code of the process."""
    if COMPLETION in os.environ:  # the shell asks for completions
        app(args=arguments, prog_name="deltakwt")
    arguments, debug = _take_global_options(arguments)
    if arguments[:1] == ["spot"] and "--json=full" in arguments:
        arguments[arguments.index("--json=full")] = "--json"  # typer has no optional values
        arguments.insert(1, "--full")
    try:
        code = _invoke(app, arguments or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        _discard_output()
        return ExitCode.DONE
    except KeyboardInterrupt:
        fail("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:
        stop = _signal_behind(error)
        if isinstance(stop, SystemExit):
            return int(stop.code or 0)
        if stop is not None:
            fail("interrupted")
            return ExitCode.INTERRUPTED
        if debug:
            traceback.print_exc()
        fail(str(error) if isinstance(error, DeltakwtError) else describe(error))
        _discard_unwritable_output()
        return exit_code_of(error)
    finally:
        release_folders()
    return code


def _signal_behind(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return the signal that caused an error, if any: it can hit the middle of Python's locks."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt | SystemExit):
            return at
        at = at.__cause__ or at.__context__
    return None


def _take_global_options(arguments: list[str]) -> tuple[list[str], bool]:
    """Remove --debug, -q and -v, which may stand anywhere before "--", and apply them."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    quiet, verbose = {"-q", "--quiet"} & set(own), {"-v", "--verbose"} & set(own)
    set_level(QUIET if quiet else VERBOSE if verbose else USUAL)
    taken = {"--debug", "-q", "--quiet", "-v", "--verbose"}
    rest = [argument for argument in own if argument not in taken] + arguments[len(own) :]
    return rest, "--debug" in own


def _hide_types(command: Any) -> None:
    """Keep the types that typer adds to arguments out of --help: FILE, not FILE <list[str]>."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner)


def _invoke(app: typer.Typer, arguments: list[str]) -> int:
    """Parse and run. Typer's own `main` would turn a closed pipe into an error."""
    command = typer.main.get_command(app)
    _hide_types(command)
    try:
        with command.make_context("deltakwt", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except UsageError as error:
        return _usage_error(error)
    return 0


def _usage_error(error: Any) -> int:
    """Print what is wrong with the command line, or show the help of a verb given alone."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help())
        return 0
    path = error.ctx.command_path if error.ctx else "deltakwt"
    verb = path.removeprefix("deltakwt").strip()
    message = error.format_message()
    stop = "" if message.endswith((".", "?")) else "."
    fail(f"{verb}: {message}{stop} Try: {path} --help".removeprefix(": "))
    return int(error.exit_code)


def _discard_output() -> None:
    """Discard the rest of the output, so that closing stdout at exit does not fail."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def _discard_unwritable_output() -> None:
    """Discard output that cannot be written, for example to a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, DeltakwtError) and not is_disk_failure(error):
        return error.exit_code
    return ExitCode.FAILED


def describe(error: BaseException) -> str:
    """Return one line about an error that no command expected."""
    no_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    if isinstance(error, MemoryError) or no_thread:
        detail = f" ({error})" if str(error) else ""
        return f"not enough memory{detail}; close other programs or raise the limit"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"


def stop_on_signals() -> None:
    """Make SIGTERM end the program like Ctrl-C: files in progress are removed or completed.

    The handlers raise an exception. Python drops it where a callback runs, such as that of a weak
    reference; the signal then comes again.
    """

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    sys.unraisablehook = _signal_again


def _signal_again(dropped: sys.UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(dropped.exc_value, SystemExit):
        number = signal.SIGTERM
    else:
        sys.__unraisablehook__(dropped)
        return
    if sys.platform == "win32":
        signal.raise_signal(number)
        return
    # Not from here: this function is a callback too.
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
