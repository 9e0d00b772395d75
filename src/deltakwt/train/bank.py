"""A bank of augmented examples, made once and reused in every epoch.

Augmentation takes longer than a step of a small model. With a bank, a small model sees each
example many times, with other masks and other frames each time. The teachers answer the augmented
examples themselves, speech and sounds included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from deltakwt.core.config import FEATURES, FRAMES
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import softmax
from deltakwt.data.recordings import Places
from deltakwt.train.examples import ShardMaker, TrainingShard
from deltakwt.train.features import masks, some_frames
from deltakwt.train.plan import Plan
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

FEATURES_FILE, REST_FILE = "bank.npy", "bank.npz"
BATCH = 64  # examples made at once
SPREAD_OF = 2000  # examples of which the spread of each feature is taken

Progress = Callable[[int, int], None]


class Bank:
    """Makes shards from stored examples. A shard depends on the plan and its number only."""

    def __init__(self, plan: Plan, folder: Path, device: torch.device) -> None:
        self.plan, self.device = plan, device
        try:
            self.features = np.load(folder / FEATURES_FILE, mmap_mode="r")  # (n, 98, 40)
            with np.load(folder / REST_FILE) as rest:
                self.labels = rest["labels"]  # (n,)
                self.negative = rest["negative"]  # (n,) bool
                self.answers = rest["answers"]  # (n, labels), or (n, 0) without teachers
        except (OSError, ValueError, KeyError) as error:
            raise DeltakwtError(
                f"{folder}: the bank of examples cannot be read: {error}"
            ) from error

    def epoch(self, epoch: int) -> tuple[Places, Places]:
        """Return all examples in a random order, and their labels."""
        order = np.random.default_rng((self.plan.seed, epoch)).permutation(len(self.labels))
        return order, self.labels[order]

    def shard(self, rows: Places, labels: Places, number: int, part: float) -> TrainingShard:
        """Return shard `number` of the run, at `part` (0 to 1) of it."""
        plan, to = self.plan, self.device
        rng = Generator().manual_seed((plan.seed << 40) + number)
        features = torch.from_numpy(self.features[rows].astype(np.float32))
        hidden = masks(len(rows), plan.recipe, plan.mask_strength(part), rng)
        chosen = some_frames(FRAMES, plan.token_group(part), rng)
        low, high = plan.delta_scale
        scale = low + (high - low) * float(torch.rand((), generator=rng))
        is_taught = self.answers.shape[1] > 0
        answers = (
            torch.from_numpy(self.answers[rows])
            if is_taught
            else torch.zeros(len(rows), len(plan.labels))
        )
        return TrainingShard(
            features.masked_fill(hidden, 0.0).to(to),
            None,
            torch.from_numpy(labels).to(to),
            torch.from_numpy(self.negative[rows]).to(to),
            torch.full((len(rows),), is_taught, device=to),
            answers.to(to),
            np.full(len(rows), -1),
            None if chosen is None else chosen.to(to),
            scale,
        )


def make_bank(
    plan: Plan, maker: ShardMaker, folder: Path, progress: Progress = lambda done, total: None
) -> None:
    """Write `plan.bank` examples to `folder`, unless they are there."""
    if (folder / REST_FILE).is_file():
        return
    engines = [_engine(name, plan.labels) for name in plan.teachers]
    labels, negative = np.zeros(plan.bank, np.int64), np.zeros(plan.bank, bool)
    answers = np.zeros((plan.bank, len(plan.labels) if engines else 0), np.float32)
    try:
        features = np.lib.format.open_memmap(
            folder / FEATURES_FILE, "w+", np.float16, (plan.bank, FRAMES, FEATURES)
        )
        done = 0
        for shard in _shards(maker):
            rows = slice(done, min(done + len(shard.labels), plan.bank))
            count = rows.stop - done
            made = shard.features[:count].cpu().numpy()
            features[rows], labels[rows] = made, shard.labels[:count].cpu()
            negative[rows] = shard.negative[:count].cpu()
            for engine in engines:
                logits = np.stack([engine.dense(clip) for clip in made])
                answers[rows] += softmax(logits) / len(engines)
            done = rows.stop
            progress(done, plan.bank)
            if done == plan.bank:
                break
        features.flush()
        np.savez(folder / REST_FILE, labels=labels, negative=negative, answers=answers)
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot write the bank: {error.strerror}") from error


def _engine(name: str, labels: tuple[str, ...]) -> Engine:
    weights = load_weights(resolve(name))
    if weights.config.labels != labels:
        raise DeltakwtError(f"{name}: the teacher must have the labels that are to be learned")
    return Engine(weights.config, weights.tensors)


def _shards(maker: ShardMaker) -> Iterator[TrainingShard]:
    """Yield shards of augmented examples without masks, epoch after epoch."""
    number = epoch = 0
    while True:
        rows, labels = maker.epoch(epoch)
        for start in range(0, len(rows), BATCH):
            own = slice(start, start + BATCH)
            yield maker.shard(rows[own], labels[own], number, 1.0)
            number += 1
        epoch += 1


def standardise(weights: dict[str, Tensor], bank: Bank) -> None:
    """Scale a random embedding so that every coefficient of the features counts equally.

    The first MFCC of silence is -349, the last ones stay below 4. Without this, a random model
    begins with little more than the first coefficients.
    """
    features = torch.from_numpy(bank.features[:SPREAD_OF].astype(np.float32)).flatten(0, 1)
    weights["embed.weight"] /= features.std(0).clamp(min=1e-3)[:, None]
    weights["embed.bias"] -= features.mean(0) @ weights["embed.weight"]
