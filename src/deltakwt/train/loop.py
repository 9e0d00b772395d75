"""The training loop: plan and data in, checkpoints and a log out, in one process or several."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deltakwt.config import FRAMES, SILENCE
from deltakwt.thresholds import Thresholds
from deltakwt.train import augment, checkpoint
from deltakwt.train.cache import Cache
from deltakwt.train.checkpoint import State
from deltakwt.train.delta import thresholds_in_the_loop
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.net import Kwt, keep
from deltakwt.train.parallel import World
from deltakwt.train.plan import Plan
from deltakwt.train.task import SILENT, Task, clips_of, validation_set

CHECKPOINT_SECONDS = 120.0
BETAS, EPSILON = (0.9, 0.98), 1e-8


@dataclass(frozen=True)
class Progress:
    """What is told after every step."""

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float  # last validation
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
        teacher: Kwt | None = None,
        world: World | None = None,
        report: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.plan, self.state, self.cache, self.training = plan, state, cache, training
        self.folder, self.teacher, self.report = folder, teacher, report
        self.world = world or World()
        self.net = Kwt(plan.config())
        self.net.load(state.weights)
        self.noises = [torch.from_numpy(n.astype(np.float32) / 32768) for n in cache.noises]
        clips, self.answers = validation_set(cache, validation, self.noises)
        with torch.inference_mode():
            self.heard = torch.cat([mfcc(mel_energies(part)) for part in clips.split(64)])
        self.steps_an_epoch = max(1, len(training.epoch(plan.seed, 0)[0]) // plan.batch)
        self.steps = self.steps_an_epoch * plan.epochs
        self.theta = torch.from_numpy(
            Thresholds.parse(plan.delta).array(plan.config().layers)
            if plan.delta
            else np.full((plan.config().layers, 9), -1, np.float32)
        )
        self.stop = False
        self._epoch = -1

    def run(self) -> bool:
        """True when the plan is done; False when stopped, with everything kept to go on."""
        last_save, rate = time.monotonic(), Rate()
        losses: list[float] = []
        while self.state.step < self.steps:
            began = time.monotonic()
            loss, stopping = self._step()
            losses.append(loss)
            rate.add(self.plan.batch, time.monotonic() - began)
            self.state.seconds += time.monotonic() - began
            if self.state.step % self.steps_an_epoch == 0:
                self._end_of_epoch(float(np.mean(losses)), rate.value)
                losses = []
            if self.world.first and (stopping or time.monotonic() - last_save > CHECKPOINT_SECONDS):
                self.save()
                last_save = time.monotonic()
            if stopping:
                return False
            self.report(self._progress(loss, rate.value))
        if self.world.first:
            self.save()
        return True

    def save(self) -> None:
        self.state.weights = self.net.state()
        checkpoint.save(self.folder, self.plan, self.state)

    def accuracy(self, weights: dict[str, Tensor], count: int | None = None) -> float:
        """On the validation split (or its first `count` clips), dense, plain front end."""
        net = Kwt(self.plan.config())
        net.load(weights)
        heard, answers = self.heard[:count], self.answers[:count]
        right = torch.zeros(1)
        with torch.inference_mode():
            for index in range(self.world.rank * 64, len(heard), self.world.size * 64):
                part = slice(index, index + 64)
                right += (net(heard[part]).argmax(1) == answers[part]).sum()
        return float(self.world.sum(right)) / len(heard)

    def _step(self) -> tuple[float, bool]:
        """One batch and one update; the loss, and whether any process was asked to stop."""
        plan, step = self.plan, self.state.step
        epoch, place = divmod(step, self.steps_an_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self.training.epoch(plan.seed, epoch)
        total = torch.zeros(())
        for shard in range(self.world.rank, plan.batch // plan.shard, self.world.size):
            start = place * plan.batch + shard * plan.shard
            rows, labels = (part[start : start + plan.shard] for part in self._order)
            if len(rows):
                rng = torch.Generator().manual_seed((plan.seed << 40) + (step << 12) + shard)
                loss = self._loss(rows, torch.from_numpy(labels), step / self.steps, rng)
                (loss / plan.batch).backward()
                total += loss.detach()
        gradients, extra = self.world.sum_gradients(self.net, [float(total), float(self.stop)])
        self._update(gradients)
        return extra[0] / plan.batch, extra[1] > 0

    def _loss(self, rows: np.ndarray, labels: Tensor, part: float, rng: torch.Generator) -> Tensor:
        """Sum over a shard: cross entropy with the label, blended with the teacher's answer."""
        plan = self.plan
        clips = augment.move_and_stretch(clips_of(self.cache, rows), RECIPE, rng)
        clips = augment.add_noise(clips, self.noises, RECIPE, rng)
        silent = torch.from_numpy(rows == SILENT)
        if silent.any():
            clips[silent] = augment.silence(self.noises, int(silent.sum()), rng)
        energies = mel_energies(clips)
        features = mfcc(energies, *augment.front_end_settings(len(rows), rng))
        features = augment.spec_augment(features, RECIPE, plan.mask_strength(part), rng)
        chosen = augment.some_frames(FRAMES, plan.token_group(part), rng)
        logits = self.net(features, chosen, self._rewrite(part, rng))
        loss = F.cross_entropy(logits, labels, label_smoothing=plan.smoothing, reduction="none")
        if self.teacher is not None:
            with torch.inference_mode():
                # Every second frame is enough for a teacher: half the time, the same answers.
                soft = self.teacher(mfcc(energies), torch.arange(0, FRAMES, 2)).softmax(1)
            # Authors' models call noise a word, so what is silence is told by the label alone.
            share = torch.where(silent, 0.0, plan.teacher_share)
            loss = (1 - share) * loss + share * F.cross_entropy(
                logits, soft.clone(), reduction="none"
            )
        return loss.sum()

    def _rewrite(self, part: float, rng: torch.Generator):  # type: ignore[no-untyped-def]
        if not self.plan.delta or part < self.plan.delta_from:
            return keep
        low, high = self.plan.delta_scale
        scale = low + (high - low) * float(torch.rand((), generator=rng))
        return thresholds_in_the_loop(self.theta, scale)

    @torch.no_grad()
    def _update(self, gradients: dict[str, Tensor]) -> None:
        """AdamW with clipped gradients, and the running average."""
        plan, state = self.plan, self.state
        state.step += 1
        rate = plan.learning_rate(state.step / self.steps)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
        factor = min(1.0, plan.clip_norm / (norm + 1e-6))
        decay = min(plan.ema, (1 + state.step) / (10 + state.step))
        for name, parameter in self.net.tensors.items():
            gradient = gradients[name] * factor
            first, second = state.first[name], state.second[name]
            first.lerp_(gradient, 1 - BETAS[0])
            second.lerp_(gradient.square(), 1 - BETAS[1])
            if name.endswith("weight") and "norm" not in name:
                parameter.mul_(1 - rate * plan.weight_decay)
            step_first = rate / (1 - BETAS[0] ** state.step)
            root = (second / (1 - BETAS[1] ** state.step)).sqrt_().add_(EPSILON)
            parameter.addcdiv_(first, root, value=-step_first)
            state.average[name].lerp_(parameter, 1 - decay)

    def _end_of_epoch(self, loss: float, clips_per_second: float) -> None:
        """Validate the average; on a part of the clips until the end comes near."""
        state = self.state
        done = state.step / self.steps
        whole = done > 0.8
        accuracy = self.accuracy(state.average, None if whole else 1000)
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

    def _progress(self, loss: float, rate: float) -> Progress:
        left = (self.steps - self.state.step) * self.plan.batch / max(rate, 1e-6)
        epoch = self.state.step // self.steps_an_epoch
        accuracy = self.state.history[-1]["validation"] if self.state.history else math.nan
        return Progress(self.state.step, self.steps, epoch, loss, accuracy, rate, left)


class Rate:
    """Clips a second over the last minute or so."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, clips: int, seconds: float) -> None:
        now = clips / max(seconds, 1e-6)
        self.value = now if not self.value else 0.98 * self.value + 0.02 * now


RECIPE = augment.Recipe()


def write_log(path: Path, history: list[dict[str, float]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, history[0].keys())
        writer.writeheader()
        writer.writerows(history)
