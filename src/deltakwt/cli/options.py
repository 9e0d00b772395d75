"""The option of the arithmetic, and commands whose options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from deltakwt.core.config import PREFER_FIXED

DEFAULT_ARITHMETIC = "fixed where the model has scales" if PREFER_FIXED else "float"
ArithmeticOption = Annotated[
    str | None,
    typer.Option(
        "--arithmetic",
        help="Compute in float, or in fixed point (16-bit integers, the same bits on every"
        f" processor), which needs scales (deltakwt quantize). Default: {DEFAULT_ARITHMETIC}.",
    ),
]
Options = TypeVar("Options")


def with_options(run: Callable[[Options], None], options: type[Options]) -> Callable[..., None]:
    """Return a function for typer whose parameters are the fields of a dataclass."""

    def command(**values: Any) -> None:
        run(options(**values))

    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(options, field.name, inspect.Parameter.empty),
            annotation=hints[field.name],
        )
        for field in fields(options)  # type: ignore[arg-type]
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = hints
    command.__doc__ = run.__doc__
    return command
