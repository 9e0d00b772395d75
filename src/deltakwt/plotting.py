"""Draw with Matplotlib into files; no display is needed. Every command that draws uses this."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltakwt.core.errors import MissingExtra
from deltakwt.files import write_atomically


def pyplot() -> Any:
    """Return matplotlib's pyplot without a screen, or say which extra brings it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("drawing figures", "report") from None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw text as it is: a name with a `$` is not read as a formula, which could be a wrong one.

    Also a decorator of functions that draw. Without matplotlib, `pyplot` says what is missing.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        yield
        return
    with rc_context({"text.parse_math": False}):
        yield


def save_png(figure: Any, path: Path, dpi: int) -> None:
    """Write a figure as PNG on white, whole or not at all, and close it."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dpi, facecolor="white")
    pyplot().close(figure)
    write_atomically(path, picture.getvalue())
