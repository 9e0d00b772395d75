"""Run `deltakwt train` as a module, for torchrun: `torchrun -m deltakwt.train ...`."""

from __future__ import annotations

import sys

import typer

from deltakwt.cli.common import run
from deltakwt.cli.train import register

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
register(app)
sys.exit(run(app, sys.argv[1:]))
