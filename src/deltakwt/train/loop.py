"""The training loop: plan and data in, checkpoints and a log out, in one process or several."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deltakwt.core.config import SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.recordings import Places
from deltakwt.files import write_atomically, writing
from deltakwt.train import checkpoint
from deltakwt.train.bank import Bank
from deltakwt.train.checkpoint import State
from deltakwt.train.delta import MacPenalty, thresholds_in_the_loop
from deltakwt.train.distil import HINT, hint_loss, layerwise_loss
from deltakwt.train.examples import (
    ShardMaker,
    TrainingShard,
    WordClips,
    validation_clips,
    validation_speech,
)
from deltakwt.train.features import plain_features
from deltakwt.train.negatives import TrainingSound
from deltakwt.train.net import Kwt, Rewrite, keep
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan

CHECKPOINT_SECONDS = 120.0
QUICK_CLIPS = 1000  # validation clips after an epoch, before the last fifth of the run
WHOLE_FROM = 0.8
SPEECH_CUTS = 1500  # validation cuts of running speech
FIRED = 0.5  # keyword probability that counts as a false accept of a cut


@dataclass(frozen=True)
class Progress:
    """What is reported after every step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float  # of the last validation; NaN before the first
    clips_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class Data:
    """What is learned from and what is validated on."""

    training: WordClips
    validation: WordClips
    material: TrainingSound
    held_out: TrainingSound
    answers: tuple[Places, Tensor] | None = None  # rows, and the teachers' answers to them


@dataclass(frozen=True)
class Guides:
    """The teachers of single blocks: one of the same shape, one that is narrower."""

    layerwise: Kwt | None = None  # of the same shape
    hints: Kwt | None = None  # narrower


class Trainer:
    """One run. `run()` trains until the plan is done or `stop` is set."""

    def __init__(
        self,
        plan: Plan,
        state: State,
        data: Data,
        folder: Path,
        *,
        guides: Guides | None = None,
        world: World | None = None,
        device: str = "cpu",
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.plan, self.state, self.folder = plan, state, folder
        self.world, self.report = world or World(), report
        self.device = torch.device(device)
        self.net = Kwt(plan.config()).to(self.device)
        self.net.load(state.weights)
        self.maps = {  # of the hints: trained with the net, not part of the model
            name: tensor.to(self.device).requires_grad_()
            for name, tensor in state.weights.items()
            if name.startswith(HINT)
        }
        self.parameters: dict[str, Tensor] = {**self.net.tensors, **self.maps}
        guides = guides or Guides()
        self.layerwise_teacher = guides.layerwise and guides.layerwise.to(self.device)
        self.hint_teacher = guides.hints and guides.hints.to(self.device)
        state.to(self.device)
        self.maker: ShardMaker | Bank = (
            Bank(plan, folder, self.device)
            if plan.bank
            else ShardMaker(
                plan, data.training, data.material, state.hard, self.device, data.answers
            )
        )
        clips, labels = validation_clips(data.held_out, data.validation)
        self.clips = plain_features(clips, self.device, plan.stride)  # (n, frames, 40)
        self.labels = labels.to(self.device)
        speech = validation_speech(data.held_out, SPEECH_CUTS)
        self.speech = plain_features(speech, self.device, plan.stride)  # (m, frames, 40)
        self.keywords = torch.tensor([label not in (SILENCE, UNKNOWN) for label in plan.labels])
        self._epoch, self._rows = 0, self.maker.epoch(0)
        self.steps_per_epoch = max(1, len(self._rows[0]) // plan.batch)
        self.steps = self.steps_per_epoch * plan.epochs
        self.stop = False

    def run(self) -> bool:
        """Return True when the plan is done, False when stopped. Both write a checkpoint."""
        last_save, speed = time.monotonic(), 0.0
        losses: list[float] = []
        while self.state.step < self.steps:
            began = time.monotonic()
            loss, stopping = self._step()
            if not math.isfinite(loss):
                raise DeltakwtError(
                    f"{self.folder}: the loss is not finite at step {self.state.step}; the last"
                    " checkpoint is kept: continue with --resume and a lower --rate"
                )
            losses.append(loss)
            seconds = time.monotonic() - began
            now = self.plan.batch / max(seconds, 1e-6)
            speed = 0.98 * speed + 0.02 * now if speed else now
            self.state.seconds += seconds
            if self.state.step % self.steps_per_epoch == 0:
                self._end_of_epoch(float(np.mean(losses)), speed)
                losses = []
            if stopping or time.monotonic() - last_save > CHECKPOINT_SECONDS:
                self.save()
                last_save = time.monotonic()
            self.report(self._progress(loss, speed))
            if stopping:
                return False
        self.save()
        return True

    def save(self) -> None:
        """Write the checkpoint, from the first process only."""
        if self.world.first:
            self.state.weights = {n: p.detach().clone() for n, p in self.parameters.items()}
            checkpoint.save(self.folder, self.plan, self.state)

    def logits(self, weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """Return dense logits (n, labels) of features (n, frames, 40).

        Each process computes a part of them.
        """
        net = Kwt(self.plan.config()).to(self.device)
        net.load(weights)
        out = torch.zeros(len(features), len(self.plan.labels))
        with torch.inference_mode():
            for start in range(self.world.rank * 64, len(features), self.world.size * 64):
                out[start : start + 64] = net(features[start : start + 64]).cpu()
        return self.world.sum(out)

    def validate(
        self, weights: Mapping[str, Tensor], count: int | None = None
    ) -> tuple[float, float]:
        """Return the accuracy on validation clips and the false accepts on validation speech.

        A false accept is a cut of running speech with a keyword probability above 0.5. The first
        `count` clips are used. Without speech the second number is 0.
        """
        answer = self.logits(weights, self.clips[:count]).argmax(1)
        accuracy = float((answer == self.labels[:count].cpu()).double().mean())
        if not len(self.speech):
            return accuracy, 0.0
        scores = self.logits(weights, self.speech[:count]).softmax(1)[:, self.keywords]
        return accuracy, float((scores.max(1).values > FIRED).double().mean())

    def _step(self) -> tuple[float, bool]:
        """Train on one batch. Return the mean loss and whether any process was asked to stop."""
        plan, step = self.plan, self.state.step
        epoch, place = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._rows = epoch, self.maker.epoch(epoch)
        total, part = 0.0, step / self.steps
        fired = torch.zeros(plan.batch, 2, dtype=torch.float64)  # place + 1, keyword probability
        for number in range(self.world.rank, math.ceil(plan.batch / plan.shard), self.world.size):
            start = place * plan.batch + number * plan.shard
            end = min(start + plan.shard, (place + 1) * plan.batch)
            rows, labels = (order[start:end] for order in self._rows)
            if len(rows):
                shard = self.maker.shard(rows, labels, (step << 12) + number, part)
                loss, logits = self._loss(shard, part)
                (loss / plan.batch).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
                own = slice(number * plan.shard, number * plan.shard + len(rows))
                fired[own, 0] = torch.from_numpy(shard.places + 1).double()
                fired[own, 1] = self._keyword_scores(logits)
        gradients, (loss_sum, stops) = self.world.sum_gradients(self.parameters, [total, self.stop])
        self._update_hard_negatives(fired)
        checkpoint.adamw_step(plan, self.state, self.parameters, gradients, self.steps)
        return loss_sum / plan.batch, stops > 0

    def _keyword_scores(self, logits: Tensor | None) -> Tensor:
        if logits is None or not self.keywords.any():
            return torch.zeros(())
        return logits.detach().softmax(1).cpu()[:, self.keywords].max(1).values.double()

    def _update_hard_negatives(self, fired: Tensor) -> None:
        """Update the pool, which is the same in every process, with the cuts of this batch."""
        if self.plan.bank:
            return
        fired = self.world.sum(fired)
        negative = fired[fired[:, 0] > 0]
        places = (negative[:, 0] - 1).long().numpy()
        self.state.hard.update(places, negative[:, 1].numpy())

    def _loss(self, shard: TrainingShard, part: float) -> tuple[Tensor, Tensor | None]:
        """Return the sum of the losses of a shard, and the logits if there are any."""
        plan, count = self.plan, len(shard.labels)
        if self.layerwise_teacher is not None and shard.clear is not None:
            loss = layerwise_loss(self.net, self.layerwise_teacher, shard.clear, shard.chosen)
            return loss * count, None
        penalty = MacPenalty(plan.config())
        rewrite = self._rewrite(shard, part, penalty)
        tokens = self.net.layers(shard.features, shard.chosen, rewrite)
        logits = self.net.logits(tokens[-1])
        loss = self._errors(logits, shard, part).sum() + plan.mac_penalty * penalty.total * count
        if self.hint_teacher is not None and (weight := plan.weight_of_hints(part)):
            with torch.no_grad():
                shown = self.hint_teacher.layers(shard.features, shard.chosen)
            loss = loss + weight * count * hint_loss(tokens, self.maps, shown)
        return loss, logits

    def _errors(self, logits: Tensor, shard: TrainingShard, part: float) -> Tensor:
        """Return (B,) cross entropy with the label, blended with that of the teachers' answer."""
        smoothing = self.plan.smoothing
        loss = F.cross_entropy(logits, shard.labels, label_smoothing=smoothing, reduction="none")
        if shard.taught.any():
            taught = F.cross_entropy(logits, shard.answers, reduction="none")
            share = torch.where(shard.taught, self.plan.teacher_share, 0.0)
            loss = (1 - share) * loss + share * taught
        return loss * torch.where(shard.negative, self.plan.weight_of_negatives(part), 1.0)

    def _rewrite(self, shard: TrainingShard, part: float, penalty: MacPenalty) -> Rewrite:
        plan = self.plan
        if not plan.delta or part < plan.delta_from:
            return keep
        counted = penalty if plan.mac_penalty else None
        return thresholds_in_the_loop(plan.thresholds(), plan.config().layers, shard.scale, counted)

    def _end_of_epoch(self, loss: float, clips_per_second: float) -> None:
        """Validate the averaged weights; keep the best of those that were validated in full."""
        state = self.state
        done = state.step / self.steps
        whole = done > WHOLE_FROM
        accuracy, accepts = self.validate(state.average, None if whole else QUICK_CLIPS)
        score = accuracy - accepts
        if not whole or score >= state.best_score:
            state.best = {name: tensor.clone() for name, tensor in state.average.items()}
            state.best_score = score if whole else -1.0
        state.history.append(
            {
                "epoch": state.step // self.steps_per_epoch,
                "step": state.step,
                "loss": round(loss, 5),
                "validation": round(accuracy, 5),
                "speech_accepts": round(accepts, 5),
                "hard_negatives": len(state.hard.scores),
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
        epoch = state.step // self.steps_per_epoch
        accuracy = state.history[-1]["validation"] if state.history else math.nan
        return Progress(
            state.step, self.steps, epoch, plan.epochs, loss, accuracy, clips_per_second, left
        )


def write_log(path: Path, history: list[dict[str, float]]) -> None:
    """Write one CSV line per epoch."""
    text = io.StringIO()
    writer = csv.DictWriter(text, history[0].keys())
    writer.writeheader()
    writer.writerows(history)
    with writing(path):
        write_atomically(path, text.getvalue().encode())
