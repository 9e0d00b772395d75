"""Options of several verbs, the folder of `--out`, and commands whose options are a dataclass."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from deltakwt.core.errors import DeltakwtError

DEFAULT_MODEL = "kwt-1"

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        envvar="DELTAKWT_MODEL",
        help="Use this model: a name, a model folder, or a .tflite file of the KWT authors.",
    ),
]
DataOption = Annotated[
    Path,
    typer.Option(
        "--data", metavar="DIR", help="Use this Speech Commands folder.", show_default=False
    ),
]
ThresholdsOption = Annotated[
    str | None,
    typer.Option(
        "--thresholds",
        metavar="VALUES",
        help="Run with these delta thresholds on the plain front end:"
        " x_q_k_scores_softmax_heads[_mlpin_mlphidden[_v]], such as 0.2_0.2_0.2_0.05_0.001_0.05.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Run with this profile of the model, or dense. Default: the model's own.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ThreadsOption = Annotated[
    int,
    typer.Option("--threads", min=0, metavar="N", help="Use this many threads; 0 uses all cores."),
]
ArithmeticOption = Annotated[
    str | None,
    typer.Option(
        "--arithmetic",
        metavar="KIND",
        help="Compute in float, or in fixed point (16-bit integers, the same bits on every"
        " processor), which needs scales (deltakwt quantize). Default: fixed if the model has"
        " scales, else float.",
    ),
]
ProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Run this profile, or 'dense'. Can be repeated. Default: dense and all profiles.",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        metavar="N",
        help="Use only this many clips, drawn at random. Default: all.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", help="Use this seed for all random draws.")
]

# Of the verbs that run streams.
HopOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Compute a window every this many seconds. Default: the model's own, else 0.1.",
    ),
]
ReuseOption = Annotated[
    float | None,
    typer.Option(
        metavar="DIFFERENCE",
        help="Do not compute a window again if no feature differs by more than this from the last"
        " computed one; 0 is exact. Default: the model's own, else 3.",
    ),
]
OnOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="SCORE",
        help="Report a word from this score on, 0 to 1, for all words. Default: the model's own.",
    ),
]
GateOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of a small model, such as kwt-0, that listens all the time. The model itself"
        " then runs only where the small one suspects a word.",
    ),
]
VerifyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Confirm each event with a second stage: 'dense', a profile of the model, or another"
        " model. It must find the same word with a score of at least 0.5.",
    ),
]


def _check_split(split: str) -> str:
    if split not in ("test", "val"):
        raise DeltakwtError(f"--split {split}: must be test or val")
    return split


SplitOption = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        callback=_check_split,
        help="Take the clips of a full data set from this split: test or val.",
    ),
]
Options = TypeVar("Options")
_claims = ExitStack()  # the folders that this command has locked


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
        # The options of the command itself come before those that it inherits.
        for field in sorted(
            fields(options),  # type: ignore[arg-type]
            key=lambda field: field.name not in options.__annotations__,
        )
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = hints
    command.__doc__ = run.__doc__
    return command


def claim_folder(folder: Path) -> None:
    """Create the folder of `--out` and keep other runs out of it until the command ends."""
    from deltakwt.locks import locked

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"--out {folder}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):  # before any time is spent
        raise DeltakwtError(f"--out {folder}: cannot be written: read-only, or not permitted")
    _claims.enter_context(locked(folder))


def release_folders() -> None:
    """Let other runs use the folders again."""
    _claims.close()
