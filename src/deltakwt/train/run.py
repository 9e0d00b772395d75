"""From the options of a command to a finished model folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from deltakwt.core.config import SILENCE, UNKNOWN, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.train import checkpoint
from deltakwt.train.cache import Cache, open_cache
from deltakwt.train.checkpoint import State
from deltakwt.train.grow import grow
from deltakwt.train.loop import Progress, Trainer
from deltakwt.train.net import Kwt
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan
from deltakwt.train.synth import speak
from deltakwt.train.task import check, make_task
from deltakwt.weights.folder import Weights, load_weights, save_folder
from deltakwt.weights.registry import cache_folder, resolve


@dataclass(frozen=True)
class Request:
    """What the user asked for; the plan says what is learned, this where."""

    out: Path
    plan: Plan
    resume: bool = False
    start: str | None = None  # a model to go on from
    grow: str | None = None  # a model to widen
    synth: bool = False  # let espeak-ng fill OUT/synth first
    epochs: int | None = None  # another length for a run that goes on,
    rate: float | None = None  # or another learning rate
    cache: Path | None = None
    threads: int = 0
    device: str = "cpu"


class Listener(Protocol):
    """Is told how a run goes."""

    def prepared(self, what: str, done: int, of: int) -> None:
        """Speech made or files decoded."""

    def step(self, now: Progress) -> None:
        """A step done."""

    def warn(self, line: str) -> None:
        """Something the user should know."""


class Nobody:
    """A listener that keeps it to itself."""

    def prepared(self, what: str, done: int, of: int) -> None:
        return

    def step(self, now: Progress) -> None:
        return

    def warn(self, line: str) -> None:
        return


def train(request: Request, listener: Listener | None = None) -> Weights | None:
    """Train, and write the model folder when the plan is done; None when stopped before."""
    torch.set_flush_denormal(True)  # tiny gradients would cost hundreds of cycles each
    if request.threads:
        torch.set_num_threads(request.threads)
    _check_device(request.device)
    world, listener = World(), listener or Nobody()
    plan, state = _begin(request)
    _make_writable(request.out)
    cache = _prepare(request, plan, world, listener)
    if cache.skipped and world.first:
        file, why = next(iter(cache.skipped.items()))
        listener.warn(
            f"{len(cache.skipped)} files could not be read and are left out, as {file}: {why}"
        )
    training, validation = (make_task(cache, plan.labels, split) for split in ("train", "val"))
    check(training, validation)
    teacher = _teacher(plan) if plan.teacher else None
    if teacher is None or not same_body(teacher.config, plan.config()):
        plan = replace(plan, lessons=0.0)  # only an equal can show every block
    trainer = Trainer(
        plan,
        state,
        cache,
        training,
        validation,
        request.out,
        teacher=teacher,
        world=world,
        device=request.device,
        report=listener.step,
    )
    with _stop_politely(trainer):
        done = trainer.run()
    made = finish(trainer) if done else None
    world.close()
    return made


def finish(trainer: Trainer) -> Weights:
    """The model folder: of the best averaged weights and the last, what validates better."""
    state, plan = trainer.state, trainer.plan
    accuracy, chosen = trainer.accuracy(state.best), state.best
    last = trainer.accuracy(state.average)
    if last >= accuracy:
        accuracy, chosen = last, state.average
    training = {"plan": plan.to_json(), "validation": accuracy, "seconds": round(state.seconds)}
    arrays = {name: tensor.cpu().numpy() for name, tensor in chosen.items()}
    weights = Weights(plan.config(), arrays, training)
    if trainer.world.first:
        save_folder(trainer.folder, weights)
    return weights


def _check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise DeltakwtError(f"--device {name}: not on this machine: {error}") from error


def _make_writable(out: Path) -> None:
    """Found out now, not after the first epoch."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise DeltakwtError(f"{out}: cannot be written: {error.strerror}") from error


def _begin(request: Request) -> tuple[Plan, State]:
    """A run that goes on, or a new one from random weights or from those of a model."""
    plan = request.plan
    if request.resume:
        kept, state = checkpoint.load(request.out)
        # Where things lie may change between two sittings, and so may the length of the run.
        kept = replace(
            kept,
            data=plan.data or kept.data,
            teacher=plan.teacher or kept.teacher,
            epochs=request.epochs or kept.epochs,
            rate=request.rate or kept.rate,
        )
        return kept, state
    if (request.out / checkpoint.NAME).exists():
        raise DeltakwtError(f"{request.out}: holds a run already; go on with --resume or move it")
    weights = Kwt(plan.config(), plan.seed).state()
    if request.grow:
        source = load_weights(resolve(request.grow))
        weights |= _as_tensors(grow(source.config, source.tensors, plan.config(), plan.seed))
    elif request.start:
        source = load_weights(resolve(request.start))
        _check_same_body(request.start, source.config, plan.config())
        same_head = source.config.labels == plan.labels
        weights |= {
            name: tensor
            for name, tensor in _as_tensors(source.tensors).items()
            if same_head or not name.startswith("head.")
        }
    return plan, State.fresh(weights)


def same_body(one: Config, other: Config) -> bool:
    """Equal but for the words they know."""
    return replace(one, labels=()) == replace(other, labels=())


def _check_same_body(name: str, source: Config, wanted: Config) -> None:
    if not same_body(source, wanted):
        raise DeltakwtError(f"{name}: has another shape than the model to be trained; see --grow")


def _as_tensors(arrays: Mapping[str, NDArray[np.float32]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _prepare(request: Request, plan: Plan, world: World, listener: Listener) -> Cache:
    """One process speaks and decodes, the others wait for it."""
    home = request.cache or cache_folder() / "audio"
    folders = [Path(folder) for folder in plan.data]
    if world.first:
        if request.synth and not request.resume:
            words = [label for label in plan.labels if label not in (SILENCE, UNKNOWN)]
            speak(words, request.out / "synth", partial(listener.prepared, "speaking"))
        cache = open_cache(folders, home, partial(listener.prepared, "reading"))
    world.barrier()
    return cache if world.first else open_cache(folders, home, build=False)


def _teacher(plan: Plan) -> Kwt:
    weights = load_weights(resolve(plan.teacher))
    if weights.config.labels != plan.labels:
        raise DeltakwtError(f"{plan.teacher}: the teacher knows other words than are to be learned")
    net = Kwt(weights.config)
    net.load(_as_tensors(weights.tensors))
    return net.requires_grad_(False)


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
