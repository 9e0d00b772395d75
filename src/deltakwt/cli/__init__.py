"""The command line: one typer application with a module for each verb."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer

import deltakwt
from deltakwt.cli.running import COMPLETION, ExitCode, run, stop_on_signals

# Verbs in the order in which --help lists them.
VERBS = (
    "spot",
    "listen",
    "serve",
    "explore",
    "eval",
    "robustness",
    "macs",
    "tune",
    "quantize",
    "report",
    "bench",
    "train",
    "export",
    "models",
    "data",
    "doctor",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deltakwt {deltakwt.__version__}")
        raise typer.Exit


def _print_completion(shell: str | None) -> None:
    if shell is None:
        return
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in ("bash", "zsh", "fish"):
        raise typer.BadParameter(f"{shell!r}: must be bash, zsh or fish")
    typer.echo(get_completion_script(prog_name="deltakwt", complete_var=COMPLETION, shell=shell))
    raise typer.Exit


def build(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """Return the application with these verbs. Their modules are imported here."""
    app = typer.Typer(
        name="deltakwt",
        help="Keyword spotting whose compute follows the sound.",
        pretty_exceptions_enable=False,
        add_completion=False,  # typer's own option needs a terminal whose shell it recognises
        rich_markup_mode=None,  # plain help needs a third of the time
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version",
                callback=_print_version,
                is_eager=True,
                help="Show the version and exit.",
            ),
        ] = False,
        show_completion: Annotated[
            str | None,
            typer.Option(
                "--show-completion",
                metavar="SHELL",
                callback=_print_completion,
                is_eager=True,
                help="Show the completion script for bash, zsh or fish and exit.",
            ),
        ] = None,
        quiet: Annotated[
            bool, typer.Option("--quiet", "-q", help="Show results and errors only.")
        ] = False,
        verbose: Annotated[
            bool, typer.Option("--verbose", "-v", help="Also say what was loaded and run.")
        ] = False,
        debug: Annotated[
            bool, typer.Option("--debug", help="Show the traceback of an error.")
        ] = False,
    ) -> None:
        """Declare the options for --help. `run` takes the last three at any position."""
        del version, show_completion, quiet, verbose, debug

    for verb in verbs:
        import_module(f"{__name__}.{verb}").register(app)
    return app


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """Return the verbs whose modules a command line needs: one, if it begins with a verb."""
    first = next((word for word in arguments if not word.startswith("-")), None)
    return [first] if first in VERBS and COMPLETION not in os.environ else VERBS


def main() -> None:
    """Run the `deltakwt` command."""
    stop_on_signals()
    # A worker that fails is reported once, by the command; its log would come on top.
    logging.getLogger("concurrent.futures").disabled = True
    if COMPLETION in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    arguments = sys.argv[1:]
    try:
        app = build(_needed(arguments))
    except KeyboardInterrupt:  # while modules are imported
        _exit(ExitCode.INTERRUPTED)
    _exit(run(app, arguments))


def _exit(code: int) -> NoReturn:
    """Exit with a code, also after Ctrl-C at a moment when Python ran code from a string.

    `dataclass` does that while modules are imported. Python then ends by SIGINT, even if the
    interrupt was handled, unless another string is run after it.
    """
    exec("")
    sys.exit(code)
