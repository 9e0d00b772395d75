"""What every verb shares: the options, the consoles, progress, JSON, and how errors end."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from deltakwt.core.model import Model

DEFAULT_MODEL = "kwt-1"

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="DELTAKWT_MODEL",
        help="A shipped or pulled name, a model folder, or an authors' .tflite file.",
    ),
]
DataOption = Annotated[Path, typer.Option("--data", help="A Speech Commands folder.")]
ThresholdsOption = Annotated[
    str | None,
    typer.Option("--thresholds", help="Delta thresholds: 0.2_0.2_0.2_0.05_0.001_0.05[_0.3_0.1]."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="A named profile of the model ('dense' for none).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ThreadsOption = Annotated[int, typer.Option("--threads", min=0, help="0: all cores.")]


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the application and turn every ending into an exit code."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in own
    if debug:
        arguments = [a for a in own if a != "--debug"] + arguments[len(own) :]
    try:
        app(args=arguments, prog_name="deltakwt")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        fail("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stdout = None
        return 0
    except DeltakwtError as error:
        if debug:
            traceback.print_exc()
        fail(str(error))
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        fail(f"unexpected {type(error).__name__}: {_one_line(str(error))} (--debug shows where)")
        return 1
    return 0


def fail(message: str) -> None:
    """One line on stderr."""
    print(f"deltakwt: {_one_line(message)}", file=sys.stderr)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def print_json(document: Any) -> None:
    """The one document a `--json` run prints. NaN is not JSON, so it may not appear."""
    print(json.dumps(document, indent=2, allow_nan=False))


def console() -> Console:
    """Where tables go: stdout."""
    from rich.console import Console

    return Console(soft_wrap=False)


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are right-aligned."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    return made


@dataclass
class Bar:
    """A progress bar: `update(done, total)`, with any unit."""

    _progress: Any
    _task: Any

    def update(self, done: float, total: float | None = None) -> None:
        """`total` None: not known (yet)."""
        self._progress.update(self._task, completed=done, total=total)

    def tell(self, what: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, description=what)


@contextmanager
def progress(what: str, unit: str = "count") -> Iterator[Bar]:
    """A bar with time left on stderr; nothing where stderr is not a terminal.

    `unit` is "count" or "bytes".
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    stderr = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
        transient=True,
    ) as bars:
        yield Bar(bars, bars.add_task(what, total=None))


def load_model(name: str, profile: str | None = None, thresholds: str | None = None) -> Model:
    """The model of `--model`, set to the profile or the thresholds of the command line."""
    from deltakwt.core.model import load
    from deltakwt.core.setting import Thresholds

    if profile is not None and thresholds is not None:
        raise DeltakwtError("--thresholds and --profile exclude each other; give one of them")
    model = load(name)
    if profile is not None:
        model.setting = profile
    if thresholds is not None:
        model.setting = Thresholds.parse(thresholds)  # on the plain front end
    return model


def percent(fraction: float) -> str:
    """0.9755 -> '97.55%'."""
    return f"{100 * fraction:.2f}%"
