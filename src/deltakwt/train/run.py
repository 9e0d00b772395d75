"""From the options of a command to a finished model folder."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from deltakwt.errors import DeltakwtError
from deltakwt.train import checkpoint
from deltakwt.train.cache import open_cache
from deltakwt.train.checkpoint import State
from deltakwt.train.loop import Progress, Trainer
from deltakwt.train.net import Kwt
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan
from deltakwt.train.task import make_task
from deltakwt.weights import Weights, load_weights, save_folder


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    data: Path
    out: Path
    plan: Plan
    resume: bool = False
    teacher: Path | None = None
    cache: Path | None = None
    threads: int = 0


def train(request: Request, report: Callable[[Progress], None]) -> bool:
    """Train, and write the model folder when the plan is done; False when stopped before."""
    torch.set_flush_denormal(True)  # tiny gradients would cost hundreds of cycles each
    if request.threads:
        torch.set_num_threads(request.threads)
    world = World()
    plan, state = _start(request)
    cache = open_cache(request.data, request.cache or request.out / "cache")
    tasks = [make_task(cache, plan.labels, split) for split in ("training", "validation")]
    teacher = _teacher(request.teacher, plan) if request.teacher else None
    trainer = Trainer(plan, state, cache, *tasks, request.out, teacher, world, report)
    with _stop_politely(trainer):
        done = trainer.run()
    if done and world.first:
        finish(trainer)
    world.barrier()
    return done


def finish(trainer: Trainer) -> None:
    """The model folder, from the better of the best and the last averaged weights."""
    state = trainer.state
    arrays = {name: tensor.numpy() for name, tensor in state.best.items()}
    training = {"plan": trainer.plan.to_json(), "validation": state.best_accuracy}
    save_folder(trainer.folder, Weights(trainer.plan.config(), arrays, training))


def _start(request: Request) -> tuple[Plan, State]:
    if request.resume:
        plan, state = checkpoint.load(request.out)
        return plan, state
    if (request.out / checkpoint.NAME).exists():
        raise DeltakwtError(f"{request.out}: holds a run already; go on with --resume or move it")
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeltakwtError(f"{request.out}: cannot be written: {error.strerror}") from error
    net = Kwt(request.plan.config(), request.plan.seed)
    return request.plan, State.fresh(net.state())


def _teacher(path: Path, plan: Plan) -> Kwt:
    weights = load_weights(path)
    if weights.config.labels != plan.labels:
        raise DeltakwtError(f"{path}: the teacher knows other words than are to be learned")
    net = Kwt(weights.config)
    net.load({name: torch.from_numpy(tensor) for name, tensor in weights.tensors.items()})
    return net


@contextmanager
def _stop_politely(trainer: Trainer) -> Iterator[None]:
    """Ctrl-C and a kill end the run after the step it is in, with a checkpoint."""

    def stop(number: int, frame: object) -> None:
        trainer.stop = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
