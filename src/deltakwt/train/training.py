"""A training run from the request to the finished model folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from deltakwt.core.config import SILENCE, UNKNOWN, Config, frames_of
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import open_clips, open_noises, open_recordings
from deltakwt.data.recordings import Recordings, join, split_files, split_speech
from deltakwt.data.rooms import NOISE, SIMULATED, open_rooms
from deltakwt.data.sources import DataSource, read_source
from deltakwt.data.synth import speak
from deltakwt.files import writing
from deltakwt.locks import locked
from deltakwt.train import checkpoint
from deltakwt.train.bank import Bank, make_bank, standardise
from deltakwt.train.calibrate import calibrate, fold_temperature
from deltakwt.train.checkpoint import State
from deltakwt.train.distil import as_tensors, hint_maps, load_net, soft_answers
from deltakwt.train.examples import ShardMaker, check, clips_of_split
from deltakwt.train.grow import grow
from deltakwt.train.loop import Data, Guides, Progress, Trainer
from deltakwt.train.negatives import HardNegatives, TrainingSound
from deltakwt.train.net import Kwt
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan
from deltakwt.weights.folder import Weights, load_weights, save_folder
from deltakwt.weights.registry import cache_folder, resolve


@dataclass(frozen=True)
class TrainingRequest:
    """What the user asked for: the plan says what is learned, the rest how and where."""

    out: Path
    plan: Plan
    resume: bool = False
    start: str | None = None  # a model to continue from
    grow: str | None = None  # a model to widen
    synth: bool = False  # make speech in OUT/synth first
    epochs: int | None = None  # with `resume`: another length
    rate: float | None = None  # with `resume`: another learning rate
    cache: Path | None = None
    threads: int = 0
    device: str = "cpu"

    @property
    def cache_home(self) -> Path:
        return self.cache or cache_folder() / "audio"


class Reporter(Protocol):
    """Receives the progress of a run."""

    def prepared(self, what: str, done: int, total: int) -> None:
        """Report progress of the preparation."""

    def step(self, now: Progress) -> None:
        """Report a finished step."""

    def warn(self, line: str) -> None:
        """Report something the user should know."""

    def stopped(self, signal_number: int) -> None:
        """Report the signal that ends the run after the current step."""


class NoReporter:
    """A reporter that reports nothing."""

    def prepared(self, what: str, done: int, total: int) -> None:
        return

    def step(self, now: Progress) -> None:
        return

    def warn(self, line: str) -> None:
        return

    def stopped(self, signal_number: int) -> None:
        return


def train(request: TrainingRequest, reporter: Reporter | None = None) -> Weights | None:
    """Train and write the model folder. Return None if the run was stopped before its end."""
    if request.threads:
        torch.set_num_threads(request.threads)
    _check_device(request.device)
    with _flushed_denormals():
        return _train(request, reporter)


def _train(request: TrainingRequest, reporter: Reporter | None) -> Weights | None:
    world, reporter = World(), reporter or NoReporter()
    plan, state = _begin(request)
    _make_writable(request.out)
    with locked(request.out) if world.first else nullcontext():
        return _run(request, plan, state, world, reporter)


def _run(
    request: TrainingRequest, plan: Plan, state: State, world: World, reporter: Reporter
) -> Weights | None:
    data = _prepare(request, plan, world, reporter)
    if plan.bank and world.first:
        maker = ShardMaker(plan, data.training, data.material, HardNegatives(), torch.device("cpu"))
        make_bank(plan, maker, request.out, reporter.prepared)
    world.barrier()
    if plan.bank and not (state.step or request.start or request.grow):
        standardise(state.weights, Bank(plan, request.out, torch.device("cpu")))
        state = State.fresh(state.weights)
    trainer = Trainer(
        plan,
        state,
        data,
        request.out,
        guides=_guides(plan),
        world=world,
        device=request.device,
        report=reporter.step,
    )
    with _stop_on_signal(trainer, reporter):
        done = trainer.run()
    made = finish(trainer) if done else None
    world.close()
    return made


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Compute denormal numbers as zero: each would cost hundreds of cycles. Undone at the end."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def finish(trainer: Trainer) -> Weights:
    """Choose the best averaged weights, calibrate them and write the model folder."""
    state, plan = trainer.state, trainer.plan
    results = [(trainer.validate(weights), weights) for weights in (state.average, state.best)]
    (accuracy, accepts), chosen = max(results, key=lambda result: result[0][0] - result[0][1])
    features = torch.cat([trainer.clips, trainer.speech])
    unknown = plan.labels.index(UNKNOWN) if UNKNOWN in plan.labels else 0
    spoken = torch.full((len(trainer.speech),), unknown, device=trainer.device)
    fitted = calibrate(trainer.logits(chosen, features), torch.cat([trainer.labels, spoken]))
    tensors = fold_temperature(chosen, fitted.temperature)
    facts: dict[str, Any] = {
        "plan": plan.to_json(),
        "validation": accuracy,
        "speech_accepts": accepts if plan.speech else None,
        "calibration": fitted.to_json(),
        "sources": sources(plan),
        "seconds": round(state.seconds),
    }
    arrays = {name: tensors[name].cpu().numpy() for name in plan.config().shapes()}
    weights = Weights(plan.config(), arrays, facts)
    if trainer.world.first:
        save_folder(trainer.folder, weights)
    return weights


def sources(plan: Plan) -> list[dict[str, str]]:
    """Return every source of data with its role and licence, for the model card."""
    folders = [("words", folder) for folder in plan.data]
    folders += [("speech", folder) for folder in plan.speech]
    folders += [("sounds", folder) for folder in plan.sounds]
    listed = [(role, read_source(Path(folder))) for role, folder in folders]
    if plan.rooms == SIMULATED:
        listed.append(("rooms", DataSource("Simulated rooms", "made by pyroomacoustics (MIT)")))
    elif plan.rooms and plan.rooms != NOISE:
        listed.append(("rooms", read_source(Path(plan.rooms))))
    return [{"role": role, **source.to_json()} for role, source in listed]


def _check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise DeltakwtError(f"--device {name}: not available here: {error}") from error


def _make_writable(out: Path) -> None:
    """Fail before any time is spent if the output folder cannot be written."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()


def _begin(request: TrainingRequest) -> tuple[Plan, State]:
    """Return plan and state of a resumed run, or of a new one."""
    plan = request.plan
    if request.resume:
        kept, state = checkpoint.load(request.out)
        # Folders may have moved, and the length or the rate may be changed on purpose.
        kept = replace(
            kept,
            data=plan.data or kept.data,
            speech=plan.speech or kept.speech,
            sounds=plan.sounds or kept.sounds,
            rooms=plan.rooms or kept.rooms,
            teachers=plan.teachers or kept.teachers,
            hints=plan.hints or kept.hints,
            epochs=request.epochs or kept.epochs,
            rate=request.rate or kept.rate,
        )
        return kept, state
    if (request.out / checkpoint.NAME).exists():
        raise DeltakwtError(
            f"{request.out}: already holds a run; continue it with --resume or move it away"
        )
    weights = Kwt(plan.config(), plan.seed).state()
    if request.grow:
        source = load_weights(resolve(request.grow))
        weights |= as_tensors(grow(source.config, source.tensors, plan.config(), plan.seed))
    elif request.start:
        source = at_stride(load_weights(resolve(request.start)), plan.stride)
        if not same_body(source.config, plan.config()):
            raise DeltakwtError(
                f"{request.start}: has another shape than the model to train; see --grow"
            )
        same_head = source.config.labels == plan.labels
        weights |= {
            name: tensor
            for name, tensor in as_tensors(source.tensors).items()
            if same_head or not name.startswith("head.")
        }
    if plan.hints:
        narrow = load_weights(resolve(plan.hints)).config
        weights |= hint_maps(plan.config(), narrow, plan.seed)
    return plan, State.fresh(weights)


def at_stride(source: Weights, stride: int) -> Weights:
    """Return a model of stride 1 as one that takes every `stride`-th frame, with their positions.

    A model that was trained on a part of the frames hardly notices. Other models stay as they are.
    """
    if source.config.stride != 1 or stride == 1:
        return source
    positions = source.tensors["positions"]
    kept = np.concatenate([positions[:1], positions[1::stride]])  # the class token has one too
    config = replace(source.config, frames=frames_of(stride), stride=stride)
    return Weights(config, {**source.tensors, "positions": kept}, source.training)


def same_body(one: Config, other: Config) -> bool:
    """Return whether two shapes are equal except for the labels."""
    return replace(one, labels=()) == replace(other, labels=())


def _guides(plan: Plan) -> Guides:
    layerwise = None
    if plan.layerwise:
        if len(plan.teachers) != 1:
            raise DeltakwtError("--layerwise needs exactly one --teacher")
        layerwise = load_net(plan.teachers[0])
        if not same_body(layerwise.config, plan.config()):
            raise DeltakwtError(
                f"{plan.teachers[0]}: --layerwise needs a teacher of the shape that is trained"
            )
    return Guides(layerwise, load_net(plan.hints) if plan.hints else None)


def _prepare(request: TrainingRequest, plan: Plan, world: World, reporter: Reporter) -> Data:
    """Decode the data. The first process does the work, the others wait and read it."""
    if world.first:
        if request.synth and not request.resume:
            words = [label for label in plan.labels if label not in (SILENCE, UNKNOWN)]
            speak(words, request.out / "synth", partial(reporter.prepared, "synthesising"))
        data, skipped = _open_data(request, plan, reporter, build=True)
        if skipped:
            file, why = next(iter(skipped.items()))
            reporter.warn(
                f"{len(skipped)} files could not be read and are left out, such as {file}: {why}"
            )
    world.barrier()
    return data if world.first else _open_data(request, plan, reporter, build=False)[0]


def _open_data(
    request: TrainingRequest, plan: Plan, reporter: Reporter, build: bool
) -> tuple[Data, dict[str, str]]:
    home, words = request.cache_home, [Path(folder) for folder in plan.data]

    def decoded(folders: tuple[str, ...], what: str) -> list[Recordings]:
        progress = partial(reporter.prepared, f"reading {what}")
        return [open_recordings(Path(folder), home, progress, build) for folder in folders]

    clips = open_clips(words, home, partial(reporter.prepared, "reading words"), build)
    speech, sounds = decoded(plan.speech, "speech"), decoded(plan.sounds, "sounds")
    noises = open_noises(words, home, build)
    skipped = join([clips, *speech, *sounds]).skipped
    rooms, unread = open_rooms(plan.rooms, home, plan.seed) if plan.rooms else (None, {})
    spoken = [split_speech(part) for part in speech if part.files]
    others = [split_files(part) for part in sounds if part.files]
    # The few noises of Speech Commands serve both: they are too few to be split.
    training = TrainingSound(
        clips,
        join([train for train, _ in spoken]),
        (*(train for train, _ in others if train.files), *noises),
        None if rooms is None else torch.from_numpy(rooms),
    )
    held_out = TrainingSound(
        clips,
        join([held for _, held in spoken]),
        (*(held for _, held in others if held.files), *noises),
    )
    tasks = [clips_of_split(clips, plan.labels, split) for split in ("train", "val")]
    check(tasks[0], tasks[1], has_speech=bool(training.speech.files))
    answers = None
    if plan.teachers and not plan.bank:
        progress = partial(reporter.prepared, "asking the teachers")
        rows = tasks[0].wanted
        soft = soft_answers(plan.teachers, plan.labels, clips, rows, plan.sharpness, home, progress)
        answers = (np.asarray(rows), torch.from_numpy(soft))
    return Data(tasks[0], tasks[1], training, held_out, answers), skipped | unread


@contextmanager
def _stop_on_signal(trainer: Trainer, reporter: Reporter) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the run after the current step, with a checkpoint."""

    def stop(number: int, frame: object) -> None:
        trainer.stop = True
        reporter.stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
