"""The training loop: plan and data in, checkpoints and a log out, in one process or several."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deltakwt.core.config import FRAMES
from deltakwt.core.errors import DeltakwtError
from deltakwt.train import checkpoint
from deltakwt.train.cache import Cache
from deltakwt.train.checkpoint import State
from deltakwt.train.delta import Meter, thresholds_in_the_loop
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.lessons import lesson
from deltakwt.train.net import Kwt, Rewrite, keep
from deltakwt.train.optimiser import update
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan
from deltakwt.train.shards import Shard, Source
from deltakwt.train.task import Task, validation_clips
from deltakwt.weights.folder import write_atomically

CHECKPOINT_SECONDS = 120.0
QUICK_VALIDATION = 1000  # clips after an epoch, until the last fifth of the run
WHOLE_FROM = 0.8


@dataclass(frozen=True)
class Progress:
    """What is told after every step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float  # last validation; NaN before the first
    clips_per_second: float
    seconds_left: float


class Trainer:
    """One run: `run()` trains until the plan is done or `stop` is set."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        cache: Cache,
        training: Task,
        validation: Task,
        folder: Path,
        *,
        teacher: Kwt | None = None,
        world: World | None = None,
        device: str = "cpu",
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.plan, self.state, self.training, self.folder = plan, state, training, folder
        self.world, self.report = world or World(), report
        self.device = torch.device(device)
        self.net = Kwt(plan.config()).to(self.device)
        self.net.load(state.weights)
        self.teacher = teacher.to(self.device) if teacher else None
        state.to(self.device)
        self.source = Source(plan, cache, self.device)
        clips, self.answers = validation_clips(cache, validation)
        with torch.inference_mode():
            parts = [mfcc(mel_energies(part.to(self.device))) for part in torch.split(clips, 64)]
            self.heard = torch.cat(parts)  # (n, 98, 40)
        self.answers = self.answers.to(self.device)
        self.steps_an_epoch = max(1, len(self._order(0)[0]) // plan.batch)
        self.steps = self.steps_an_epoch * plan.epochs
        self.stop = False

    def run(self) -> bool:
        """True when the plan is done; False when stopped, with everything kept to go on."""
        last_save, speed = time.monotonic(), Speed()
        losses: list[float] = []
        while self.state.step < self.steps:
            began = time.monotonic()
            loss, stopping = self._step()
            if not math.isfinite(loss):
                raise DeltakwtError(
                    f"{self.folder}: the loss is no longer a number at step {self.state.step};"
                    " the last checkpoint is kept: start again from it with a lower --rate"
                )
            losses.append(loss)
            seconds = time.monotonic() - began
            speed.add(self.plan.batch, seconds)
            self.state.seconds += seconds
            if self.state.step % self.steps_an_epoch == 0:
                self._end_of_epoch(float(np.mean(losses)), speed.value)
                losses = []
            if stopping or time.monotonic() - last_save > CHECKPOINT_SECONDS:
                self.save()
                last_save = time.monotonic()
            self.report(self._progress(loss, speed.value))
            if stopping:
                return False
        self.save()
        return True

    def save(self) -> None:
        """Write the checkpoint, from one process."""
        if self.world.first:
            self.state.weights = self.net.state()
            checkpoint.save(self.folder, self.plan, self.state)

    def accuracy(self, weights: dict[str, Tensor], count: int | None = None) -> float:
        """On the validation split (or its first `count` clips), dense, plain front end."""
        net = Kwt(self.plan.config()).to(self.device)
        net.load(weights)
        heard, answers = self.heard[:count], self.answers[:count]
        right = torch.zeros(1)
        with torch.inference_mode():
            for index in range(self.world.rank * 64, len(heard), self.world.size * 64):
                part = slice(index, index + 64)
                right += (net(heard[part]).argmax(1) == answers[part]).sum().cpu()
        return float(self.world.sum(right)) / len(heard)

    def _step(self) -> tuple[float, bool]:
        """One batch and one update; the mean loss, and whether any process was asked to stop."""
        plan, step = self.plan, self.state.step
        epoch, place = divmod(step, self.steps_an_epoch)
        order = self._order(epoch)
        total = 0.0
        for number in range(self.world.rank, math.ceil(plan.batch / plan.shard), self.world.size):
            start = place * plan.batch + number * plan.shard
            end = min(start + plan.shard, (place + 1) * plan.batch)
            rows, labels = (part[start:end] for part in order)
            if len(rows):
                part = step / self.steps
                shard = self.source.shard(rows, labels, (step << 12) + number, part)
                loss = self._loss(shard, part)
                (loss / plan.batch).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        gradients, (loss_sum, stops) = self.world.sum_gradients(self.net, [total, self.stop])
        update(plan, self.state, self.net.tensors, gradients, self.steps)
        return loss_sum / plan.batch, stops > 0

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if getattr(self, "_epoch", None) != epoch:
            plan = self.plan
            shares = plan.unknown_share, plan.silence_share
            self._epoch, self._rows = epoch, self.training.epoch(plan.seed, epoch, *shares)
        return self._rows

    def _loss(self, shard: Shard, part: float) -> Tensor:
        """Sum over a shard of what is to become small: errors and, if asked, MACs."""
        if self.teacher and shard.clear is not None and part < self.plan.lessons:
            return lesson(self.net, self.teacher, shard.clear, shard.chosen) * len(shard.labels)
        meter = Meter(self.plan.config())
        logits = self.net(shard.features, shard.chosen, self._rewrite(shard, part, meter))
        return self._errors(logits, shard, part).sum() + self.plan.calm * meter.total * len(logits)

    def _errors(self, logits: Tensor, shard: Shard, part: float) -> Tensor:
        """Cross entropy with the label, blended with the teacher's answer."""
        smoothing = self.plan.smoothing
        loss = F.cross_entropy(logits, shard.labels, label_smoothing=smoothing, reduction="none")
        if self.teacher is None or shard.clear is None:
            return loss
        with torch.no_grad():
            # A teacher gives the same answers from every second frame, in half the time.
            apart = max(2, self.plan.token_group(part))
            frames = torch.arange(0, FRAMES, apart, device=self.device)
            soft = self.teacher(shard.clear, frames).softmax(1)
        share = torch.where(shard.certain, 0.0, self.plan.teacher_share)
        taught = F.cross_entropy(logits, soft, reduction="none")
        return (1 - share) * loss + share * taught

    def _rewrite(self, shard: Shard, part: float, meter: Meter) -> Rewrite:
        if not self.plan.delta or part < self.plan.delta_from:
            return keep
        layers = self.plan.config().layers
        read = meter if self.plan.calm else None
        return thresholds_in_the_loop(self.plan.thresholds(), layers, shard.scale, read)

    def _end_of_epoch(self, loss: float, clips_per_second: float) -> None:
        """Validate the average; the best counts once all clips are heard."""
        state = self.state
        done = state.step / self.steps
        whole = done > WHOLE_FROM
        accuracy = self.accuracy(state.average, None if whole else QUICK_VALIDATION)
        if not whole or accuracy >= state.best_accuracy:
            state.best = {name: tensor.clone() for name, tensor in state.average.items()}
            state.best_accuracy = accuracy if whole else 0.0
        state.history.append(
            {
                "epoch": state.step // self.steps_an_epoch,
                "step": state.step,
                "loss": round(loss, 5),
                "validation": round(accuracy, 5),
                "rate": self.plan.learning_rate(done),
                "clips_per_second": round(clips_per_second, 1),
                "seconds": round(state.seconds, 1),
            }
        )
        if self.world.first:
            write_log(self.folder / "log.csv", state.history)

    def _progress(self, loss: float, clips_per_second: float) -> Progress:
        state, plan = self.state, self.plan
        left = (self.steps - state.step) * plan.batch / max(clips_per_second, 1e-6)
        epoch = state.step // self.steps_an_epoch
        accuracy = state.history[-1]["validation"] if state.history else math.nan
        return Progress(
            state.step, self.steps, epoch, plan.epochs, loss, accuracy, clips_per_second, left
        )


class Speed:
    """Clips a second, over the last fifty steps or so."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, clips: int, seconds: float) -> None:
        now = clips / max(seconds, 1e-6)
        self.value = now if not self.value else 0.98 * self.value + 0.02 * now


def write_log(path: Path, history: list[dict[str, float]]) -> None:
    """One line an epoch."""
    text = io.StringIO()
    writer = csv.DictWriter(text, history[0].keys())
    writer.writeheader()
    writer.writerows(history)
    try:
        write_atomically(path, text.getvalue().encode())
    except OSError as error:
        raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from error
