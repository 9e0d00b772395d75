"""`deltakwt train`: models of one's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deltakwt.train.loop import Progress


def register(app: typer.Typer) -> None:
    @app.command()
    def train(
        data: Annotated[Path, typer.Option(help="A folder of word folders.")],
        out: Annotated[Path, typer.Option(help="Folder of the run and of the finished model.")],
        size: Annotated[str, typer.Option(help="kwt-1, kwt-2 or kwt-3.")] = "kwt-1",
        epochs: Annotated[int, typer.Option(min=1)] = 60,
        batch: Annotated[int, typer.Option(min=1)] = 128,
        rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
        seed: int = 1,
        teacher: Annotated[Path | None, typer.Option(help="A model to learn from.")] = None,
        delta: Annotated[str, typer.Option(help="Thresholds in the loop at the end.")] = "",
        cache: Annotated[Path | None, typer.Option(help="Where decoded audio is kept.")] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on with the run in OUT.")
        ] = False,
        threads: Annotated[int, typer.Option(min=0, help="0: all cores.")] = 0,
    ) -> None:
        """Train a Keyword Transformer."""
        from deltakwt.train.plan import Plan
        from deltakwt.train.run import Request
        from deltakwt.train.run import train as run

        plan = Plan(size=size, epochs=epochs, batch=batch, rate=rate, seed=seed, delta=delta)
        request = Request(data, out, plan, resume, teacher, cache, threads)
        if not run(request, Lines()):
            typer.echo(f"stopped; go on with: deltakwt train --resume --out {out} --data {data}")
            raise typer.Exit(130)


class Lines:
    """One line of progress every ten seconds."""

    def __init__(self) -> None:
        self.told = 0.0

    def __call__(self, now: Progress) -> None:
        if time.monotonic() - self.told < 10 and now.step != now.steps:
            return
        self.told = time.monotonic()
        typer.echo(
            f"epoch {now.epoch} step {now.step}/{now.steps} loss {now.loss:.4f} validation "
            f"{100 * now.accuracy:.2f}% {now.clips_per_second:.0f} clips/s, "
            f"{now.seconds_left / 60:.0f} min left"
        )
