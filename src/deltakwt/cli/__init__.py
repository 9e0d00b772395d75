"""The command line: one typer application put together from the verb modules of this package."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

import deltakwt
from deltakwt.cli.common import run

VERBS = (
    "spot",
    "listen",
    "serve",
    "eval",
    "macs",
    "tune",
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


def build() -> typer.Typer:
    """The application with every verb registered."""
    app = typer.Typer(
        name="deltakwt",
        help="Keyword spotting whose compute follows the sound.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option("--version", callback=_print_version, is_eager=True, help="And exit."),
        ] = False,
        debug: Annotated[
            bool, typer.Option("--debug", help="Show the traceback of an error (any position).")
        ] = False,
    ) -> None:
        """`--debug` is taken off the arguments by `run`; it stands here for `--help`."""
        del version, debug

    for verb in VERBS:
        if find_spec(f"{__name__}.{verb}"):
            import_module(f"{__name__}.{verb}").register(app)
    return app


def main() -> None:
    """The `deltakwt` command."""
    sys.exit(run(build(), sys.argv[1:]))
