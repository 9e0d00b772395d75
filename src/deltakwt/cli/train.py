"""`deltakwt train`: train a Keyword Transformer."""

from __future__ import annotations

import os
import shlex
import signal
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import typer

from deltakwt.cli.common import print_json, say
from deltakwt.cli.options import with_options
from deltakwt.cli.train_options import TrainArguments
from deltakwt.core.config import KEYWORDS, SILENCE, SIZES, UNKNOWN, Config, frames_of
from deltakwt.core.errors import DeltakwtError, MissingExtra
from deltakwt.text import one_line, printable

if TYPE_CHECKING:
    from deltakwt.train.loop import Progress
    from deltakwt.train.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("train")(with_options(train, TrainArguments))


def train(options: TrainArguments) -> None:
    """Train a Keyword Transformer.

    Training starts from random weights, from a model, or from a widened copy of a model.
    """
    if find_spec("torch") is None:
        raise MissingExtra("training", "train")
    options.check()
    from deltakwt.train import training

    start = options.start or ("kwt-1" if options.synth and not options.grow else None)
    request = training.TrainingRequest(
        options.out,
        make_plan(options, start),
        resume=options.resume,
        start=start,
        grow=options.grow,
        synth=options.synth,
        epochs=options.epochs if options.resume else None,
        rate=options.rate if options.resume else None,
        cache=options.cache,
        threads=options.threads,
        device=options.device,
    )
    with ProgressReporter() as reporter:
        made = training.train(request, reporter)
    if made is None:
        again = shlex.join(["deltakwt", "train", "--resume", "--out", str(options.out)])
        typer.echo(f"stopped; continue with: {printable(again)}", err=True)
        raise typer.Exit(128 + reporter.signal)
    accuracy, facts = made.training["validation"], made.training
    if options.as_json:
        print_json({"model": str(options.out), "validation": accuracy, "training": facts})
        return
    error = 100 * facts["calibration"]["error"]
    line = f"{options.out}: accuracy {100 * accuracy:.2f}% on validation clips"
    if facts["speech_accepts"] is not None:
        line += f", {100 * facts['speech_accepts']:.2f}% false accepts on cuts of speech"
    say(f"{line}, calibration error {error:.1f}%")


def make_plan(options: TrainArguments, start: str | None) -> Plan:
    """Return the plan that the options describe; `start` is the model to continue from."""
    from deltakwt.train import plan as plans

    base = _config(start) if start else None
    labels = base.labels if base else (SILENCE, UNKNOWN, *KEYWORDS)
    if options.words is not None:
        labels = (SILENCE, UNKNOWN, *_words(options.words))
    size = _size(options, base)
    shape = plans.shape_of(size)
    folders = [*(options.data or []), *([options.out / "synth"] if options.synth else [])]
    chosen: dict[str, Any] = {
        "data": tuple(map(str, folders)),
        "speech": tuple(map(str, options.speech or [])),
        "sounds": tuple(map(str, options.sounds or [])),
        "rooms": options.rooms,
        "teachers": tuple(options.teacher or []),
        "hints": options.hints,
        "hint_until": options.hint_until,
        "shape": shape,
        "stride": size.stride,
        "labels": labels,
        "layerwise": _layerwise(options, start, size),
        "delta": _thresholds(options.delta, start),
        "mac_penalty": options.mac_penalty,
        "epochs": options.epochs,
        "rate": options.rate,
        "batch": options.batch,
        "bank": options.bank,
        "seed": options.seed,
    }
    if options.teacher_share is not None:
        chosen["teacher_share"] = options.teacher_share
    make = plans.plan_from_random
    if options.grow:
        make = plans.plan_from_widened
    elif start:
        make = plans.plan_from_model
    plan = plans.with_negatives(make(**chosen))
    recipe = replace(
        plan.recipe,
        front_end_chance=options.front_end_share,
        background_chance=options.background_share,
    )
    plan = replace(plan, recipe=recipe)
    return plans.with_synthetic_speech(plan) if options.synth else plan


def _words(text: str) -> tuple[str, ...]:
    words = tuple(" ".join(word.lower().split()) for word in text.split(","))
    if not all(word and word.replace(" ", "").replace("'", "").isalpha() for word in words):
        raise DeltakwtError(f"--words {text!r}: give words of letters, separated by commas")
    if len(set(words)) != len(words):
        raise DeltakwtError(f"--words {text!r}: a word appears twice")
    return words


def _config(name: str) -> Config:
    """Return the shape and the labels of a model."""
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    return load_weights(resolve(name)).config


def _size(options: TrainArguments, base: Config | None) -> Config:
    """Return the shape of --shape, of --size, of the model to continue from, or of kwt-1.

    --stride replaces its stride.
    """
    from deltakwt.train.plan import check_stride, parse_shape

    if options.size is not None and options.size not in SIZES:
        raise DeltakwtError(f"--size {options.size}: the sizes are {', '.join(SIZES)}")
    if options.shape:
        size = Config(*parse_shape(options.shape))
    else:
        size = SIZES[options.size] if options.size else base or SIZES["kwt-1"]
    stride = size.stride if options.stride is None else check_stride(options.stride)
    return replace(size, stride=stride, frames=frames_of(stride))


def _layerwise(options: TrainArguments, start: str | None, size: Config) -> float:
    """Return the part of layer-wise distillation; by default, where it fits."""
    from deltakwt.train.plan import LAYERWISE_PART
    from deltakwt.train.training import same_body

    if options.layerwise is not None:
        return options.layerwise
    teachers = options.teacher or []
    fits = len(teachers) == 1 and not (start or options.grow or options.speech or options.hints)
    return LAYERWISE_PART if fits and same_body(_config(teachers[0]), size) else 0.0


def _thresholds(text: str, start: str | None) -> str:
    """Return the given thresholds, or those of a profile of the model to continue from."""
    from deltakwt.core.setting import Thresholds
    from deltakwt.weights.folder import load_profiles
    from deltakwt.weights.registry import resolve

    if text and start and text in (profiles := load_profiles(resolve(start))).profiles:
        return str(profiles[text].setting.thresholds or "")
    return str(Thresholds.parse(text)) if text else ""


class ProgressReporter:
    """Shows a bar on a terminal, otherwise a line per minute; only in the first process."""

    def __init__(self) -> None:
        self.quiet = os.environ.get("RANK", "0") != "0"  # set by torchrun
        self.last_line = 0.0
        self.signal = int(signal.SIGINT)  # that ended the run, if one did

    def __enter__(self) -> ProgressReporter:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        self.lines = not console.is_terminal and not self.quiet
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self.bars = Bars(*columns, console=console, disable=self.quiet or self.lines)
        self.task = self.bars.add_task("", total=None)
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def prepared(self, what: str, done: int, total: int) -> None:
        """Show how much of the preparation is done."""
        self.bars.update(self.task, description=what, completed=done, total=total)
        self._line(f"{what} {done}/{total}", urgent=False)

    def stopped(self, signal_number: int) -> None:
        """Remember the signal, for the exit code."""
        self.signal = signal_number

    def warn(self, line: str) -> None:
        """Show a warning."""
        typer.echo(f"deltakwt: {one_line(line)}", err=True)

    def step(self, now: Progress) -> None:
        """Show a finished step."""
        known = now.accuracy == now.accuracy  # NaN before the first validation
        accuracy = f" validation {100 * now.accuracy:.2f}%" if known else ""
        line = (
            f"epoch {now.epoch}/{now.epochs} step {now.step}/{now.steps} loss {now.loss:.4f}"
            f"{accuracy} {now.clips_per_second:.0f} clips/s {_clock(now.seconds_left)} left"
        )
        self.bars.update(self.task, description=line, completed=now.step, total=now.steps)
        self._line(line, urgent=now.step == now.steps or now.step == 1)

    def _line(self, line: str, urgent: bool) -> None:
        if not self.last_line and not urgent:
            self.last_line = time.monotonic()
        if self.lines and (urgent or time.monotonic() - self.last_line > 60):
            self.last_line = time.monotonic()
            typer.echo(line, err=True)


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h"
