"""What every verb shares: messages, tables, JSON, progress, and how a model is loaded.

Text that comes from files, names or servers reaches the terminal only through the functions here,
which show control characters as escapes and never read the text as markup.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from deltakwt.core.errors import DeltakwtError
from deltakwt.text import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from deltakwt.core.model import Model

LINE_SECONDS = 5.0  # between two progress lines where stderr is not a terminal
QUIET, USUAL, VERBOSE = range(3)
_level = USUAL


# ---------------------------------------------------------------- messages, tables, JSON


def set_level(level: int) -> None:
    """Choose which lines `note` and `detail` print: QUIET, USUAL or VERBOSE."""
    global _level
    _level = level


def fail(message: str) -> None:
    """Print an error as one line on stderr: a log line, if the command writes a log there."""
    logger = logging.getLogger("deltakwt")
    if logger.level:  # start_logging has set it, so messages go to the log
        logger.error(one_line(message))
    else:
        _print_error_line(message)


def note(message: str) -> None:
    """Print one line on stderr unless --quiet is given."""
    if _level > QUIET:
        _print_error_line(message)


def detail(message: str) -> None:
    """Print one line on stderr if --verbose is given."""
    if _level == VERBOSE:
        _print_error_line(message)


def _print_error_line(message: str) -> None:
    print(f"deltakwt: {one_line(message)}", file=sys.stderr, flush=True)


def say(*lines: object) -> None:
    """Print lines on stdout, with control characters shown as escapes."""
    for line in lines:
        print(printable(line))


def print_json(document: Any) -> None:
    """Print the one document of a `--json` run. NaN is not JSON and raises ValueError."""
    print(json.dumps(document, indent=2, allow_nan=False))


def console() -> Console:
    """Return the console for tables, on stdout.

    Text is plain, as in tables; only its line breaks are kept.
    """
    from rich.console import Console
    from rich.text import Text

    class PlainConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*map(_plain, objects), **options)

        def on_broken_pipe(self) -> None:  # rich would exit with 1
            raise BrokenPipeError

    def _plain(shown: Any) -> Any:
        is_text = isinstance(shown, str)
        return Text("\n".join(map(printable, shown.split("\n")))) if is_text else shown

    return PlainConsole(soft_wrap=False)


def table(title: str, *columns: str) -> Table:
    """Return a table whose first column is left-aligned and whose others are right-aligned.

    Cells are plain text: control characters are shown as escapes, and markup has no effect.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class PlainTable(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*map(_plain, cells), **options)

    def _plain(cell: Any) -> Any:
        return Text(printable(cell)) if isinstance(cell, str) else cell

    made = PlainTable(title=_plain(title) if title else None, title_justify="left")
    made.box = box.SIMPLE_HEAD
    for number, column in enumerate(columns):
        made.add_column(_plain(column), justify="right" if number else "left", overflow="fold")
    return made


# ---------------------------------------------------------------- progress


class Bar(Protocol):
    """Shows the progress of a long command, in any unit."""

    def update(self, done: float, total: float | None = None) -> None:
        """Show how much is done, and of how much if that is known."""

    def tell(self, what: str) -> None:
        """Name the step that is being done now."""


@contextmanager
def progress(what: str, unit: str = "count") -> Iterator[Bar]:
    """Show progress on stderr: a bar on a terminal, otherwise a line every few seconds.

    `unit` is "count" or "bytes". Nothing is shown with --quiet.
    """
    if _level > QUIET and sys.stderr.isatty():
        with _drawn_bar(what, unit) as bar:
            yield bar
    else:
        yield _Lines(what, unit)


@contextmanager
def _drawn_bar(what: str, unit: str) -> Iterator[Bar]:
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

    class Drawn:
        def update(self, done: float, total: float | None = None) -> None:
            bars.update(task, completed=done, total=total)

        def tell(self, what: str) -> None:
            bars.update(task, description=printable(what))

    columns = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task(printable(what), total=None)
        yield Drawn()


class _Lines:
    """Progress as lines, for pipes and log files."""

    def __init__(self, what: str, unit: str) -> None:
        self.what, self.unit = what, unit
        self.start = self.last = time.monotonic()

    def tell(self, what: str) -> None:
        self.what = what

    def update(self, done: float, total: float | None = None) -> None:
        now = time.monotonic()
        if now - self.last < LINE_SECONDS:
            return
        self.last = now
        text = f"{self.what}: {self._amount(done)}"
        if total:
            text += f" of {self._amount(total)} ({done / total:.0%})"
            if 0 < done <= total:
                left = (now - self.start) * (total - done) / done
                text += f", about {left:.0f} s left"
        note(text)

    def _amount(self, value: float) -> str:
        return f"{value / 1e6:,.1f} MB" if self.unit == "bytes" else f"{value:,.0f}"


# ---------------------------------------------------------------- models and numbers
def load_model(
    name: str,
    profile: str | None = None,
    thresholds: str | None = None,
    arithmetic: str | None = None,
) -> Model:
    """Return the model of `--model` with the setting and the arithmetic of the command line."""
    from deltakwt.core.model import load
    from deltakwt.core.setting import Thresholds

    if profile is not None and thresholds is not None:
        raise DeltakwtError("--thresholds and --profile exclude each other; give one of them")
    model = load(name, arithmetic=arithmetic)
    if profile is not None:
        model.setting = profile
    if thresholds is not None:
        model.setting = Thresholds.parse(thresholds)  # on the plain front end
    detail(
        f"model {model.name} from {model.source}: {model.config.layers} layers, width"
        f" {model.config.dim}, setting {model.setting}, {model.arithmetic} arithmetic,"
        f" kernels {model.engine.isa}"
    )
    return model


def percent(fraction: float) -> str:
    """Return 0.9755 as "97.55%"."""
    return f"{100 * fraction:.2f}%"
