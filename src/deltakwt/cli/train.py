"""`deltakwt train`: models of one's own."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import JsonOption, ThreadsOption, print_json
from deltakwt.core.config import KEYWORDS, SILENCE, SIZES, UNKNOWN, Config
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.train.loop import Progress

Folders = Annotated[
    list[Path] | None,
    typer.Option("--data", help="A folder of word folders, as Speech Commands; may be repeated."),
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the run and of the finished model.")]
Size = Annotated[
    str | None, typer.Option("--size", help="kwt-1, kwt-2 or kwt-3; default kwt-1, or as --from.")
]
Words = Annotated[
    str | None, typer.Option("--words", help="Words to spot, with commas; default: the ten.")
]
Synth = Annotated[bool, typer.Option("--synth", help="Let espeak-ng say the words.")]
Start = Annotated[str | None, typer.Option("--from", help="A model to go on from (fine-tuning).")]
Grow = Annotated[str | None, typer.Option("--grow", help="A model to widen into SIZE.")]
Teacher = Annotated[str, typer.Option("--teacher", help="A model to learn from (distillation).")]
TeacherShare = Annotated[
    float, typer.Option("--teacher-share", min=0.0, max=1.0, help="Of the loss on words.")
]
Lessons = Annotated[
    float | None,
    typer.Option(
        "--lessons",
        min=0.0,
        max=0.95,
        help="Part of the run in which a teacher of the same size shows every block.",
    ),
]
Delta = Annotated[
    str,
    typer.Option("--delta", help="Thresholds in the loop, or the name of a profile of --from."),
]
Calm = Annotated[
    float, typer.Option("--calm", min=0.0, help="Weight of the MACs in the loss, with --delta.")
]
Steady = Annotated[
    float,
    typer.Option(
        "--steady",
        min=0.0,
        max=1.0,
        help="Share of the clips that are smoothed, and floored; 0: plain front end only.",
    ),
]
Noise = Annotated[
    float,
    typer.Option("--noise", min=0.0, max=1.0, help="Share of the clips in noise at 0 to 22 dB."),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs", min=1, help="Default 96; 7 with --teacher, 8 with --grow, 10 with --from."
    ),
]
Batch = Annotated[int, typer.Option("--batch", min=1, max=65_536, help="Clips a step.")]
Rate = Annotated[
    float | None, typer.Option("--rate", min=1e-8, max=1.0, help="Highest learning rate.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=8_000_000)]
CacheFolder = Annotated[Path | None, typer.Option("--cache", help="Where decoded audio is kept.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in OUT.")]
Device = Annotated[str, typer.Option("--device", help="cpu, or cuda.")]


def register(app: typer.Typer) -> None:
    @app.command()
    def train(
        out: Out,
        data: Folders = None,
        size: Size = None,
        words: Words = None,
        synth: Synth = False,
        start: Start = None,
        grow: Grow = None,
        teacher: Teacher = "",
        teacher_share: TeacherShare = 0.9,
        lessons: Lessons = None,
        delta: Delta = "",
        calm: Calm = 0.0,
        steady: Steady = 0.5,
        noise: Noise = 0.36,
        epochs: Epochs = None,
        batch: Batch = 128,
        rate: Rate = None,
        seed: Seed = 1,
        cache: CacheFolder = None,
        resume: Resume = False,
        threads: ThreadsOption = 0,
        device: Device = "cpu",
        as_json: JsonOption = False,
    ) -> None:
        """Train a Keyword Transformer: from nothing, from a model, or wider than a model."""
        if find_spec("torch") is None:
            raise DeltakwtError(
                'training needs torch; install it with: pip install "deltakwt[train]"'
            )
        if start and grow:
            raise DeltakwtError("--from and --grow exclude each other; give one of them")
        if calm and not delta:
            raise DeltakwtError("--calm counts MACs at thresholds; give them with --delta")
        folders = list(data or [])
        if synth:
            start = start or (None if grow else "kwt-1")
            folders.append(out / "synth")
        if not folders and not resume:
            raise DeltakwtError("give --data FOLDER, or --words with --synth")
        base = _config(start) if start else None
        labels = base.labels if base else (SILENCE, UNKNOWN, *KEYWORDS)
        if words is not None:
            labels = (SILENCE, UNKNOWN, *_words(words))
        from deltakwt.train import run
        from deltakwt.train.plan import fine_tuning, from_nothing, growing

        size = _size(size, base)
        if teacher and not run.same_body(_config(teacher), SIZES[size]):
            lessons = 0.0  # only an equal can show every block
        make = growing if grow else fine_tuning if start else from_nothing
        plan = make(
            size=size,
            labels=labels,
            data=tuple(map(str, folders)),
            teacher=teacher,
            teacher_share=teacher_share,
            lessons=lessons,
            delta=_thresholds(delta, start),
            calm=calm,
            epochs=epochs,
            rate=rate,
            batch=batch,
            seed=seed,
            synth=synth,
        )
        plan = replace(plan, recipe=plan.recipe.heard(steady, noise))
        request = run.Request(
            out,
            plan,
            resume=resume,
            start=start,
            grow=grow,
            synth=synth,
            epochs=epochs if resume else None,
            rate=rate if resume else None,
            cache=cache,
            threads=threads,
            device=device,
        )
        with Teller() as teller:
            made = run.train(request, teller)
        if made is None:
            typer.echo(f"stopped; go on with: deltakwt train --resume --out {out}", err=True)
            raise typer.Exit(130)
        accuracy = made.training["validation"]
        if as_json:
            print_json({"model": str(out), "validation": accuracy, "training": made.training})
        else:
            typer.echo(f"{out}: {100 * accuracy:.2f}% of the validation clips are right")


def _words(text: str) -> tuple[str, ...]:
    words = tuple(" ".join(word.lower().split()) for word in text.split(","))
    if not all(word and word.replace(" ", "").replace("'", "").isalpha() for word in words):
        raise DeltakwtError(f"--words {text!r}: give words of letters, with commas between them")
    if len(set(words)) != len(words):
        raise DeltakwtError(f"--words {text!r}: a word stands there twice")
    return words


def _config(name: str) -> Config:
    """The shape and the labels of a model."""
    from deltakwt.weights.folder import load_weights
    from deltakwt.weights.registry import resolve

    return load_weights(resolve(name)).config


def _size(name: str | None, base: Config | None) -> str:
    """As asked for, else as the model that is gone on from."""
    if name is None and base is not None:
        shape = (base.dim, base.heads, base.mlp, base.layers)
        sizes = {(c.dim, c.heads, c.mlp, c.layers): size for size, c in SIZES.items()}
        if shape not in sizes:
            raise DeltakwtError(
                f"--from: a model of width {base.dim} is none of {', '.join(SIZES)}"
            )
        return sizes[shape]
    if name is not None and name not in SIZES:
        raise DeltakwtError(f"--size {name}: there are {', '.join(SIZES)}")
    return name or "kwt-1"


def _thresholds(text: str, start: str | None) -> str:
    """The thresholds themselves, or those of a profile of the model that is gone on from."""
    from deltakwt.core.setting import Thresholds
    from deltakwt.weights.profiles import load_profiles
    from deltakwt.weights.registry import resolve

    if text and start and text in (profiles := load_profiles(resolve(start))).profiles:
        return str(profiles[text].thresholds)
    return str(Thresholds.parse(text)) if text else ""


class Teller:
    """Progress: a bar on a terminal, else a line a minute; only from the first process."""

    def __init__(self) -> None:
        import os

        self.quiet = os.environ.get("RANK", "0") != "0"  # set by torchrun
        self.told = 0.0

    def __enter__(self) -> Teller:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        console = Console(stderr=True)
        self.lines = not console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.bars = Bars(*columns, console=console, disable=self.quiet or self.lines)
        self.task = self.bars.add_task("", total=None)
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def prepared(self, what: str, done: int, of: int) -> None:
        self.bars.update(self.task, description=what, completed=done, total=of)

    def warn(self, line: str) -> None:
        typer.echo(f"deltakwt: {line}", err=True)

    def step(self, now: Progress) -> None:
        heard = "" if now.accuracy != now.accuracy else f" validation {100 * now.accuracy:.2f}%"
        line = (
            f"epoch {now.epoch}/{now.epochs} step {now.step}/{now.steps} loss {now.loss:.4f}"
            f"{heard} {now.clips_per_second:.0f} clips/s {_clock(now.seconds_left)} left"
        )
        self.bars.update(self.task, description=line, completed=now.step, total=now.steps)
        due = time.monotonic() - self.told > 60 or now.step == now.steps
        if self.lines and due and not self.quiet:
            self.told = time.monotonic()
            typer.echo(line, err=True)


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h"
