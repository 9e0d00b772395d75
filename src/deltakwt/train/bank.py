"""A bank of augmented examples, made once and reused in every epoch.

Augmentation takes longer than a step of a small model. With a bank, a small model sees each
example many times, with other masks and other frames each time. The teachers answer every example,
speech and sounds included; a keyword they hear without the noise that was added to it. The first
teacher also looks for hard negatives: places in the speech and the sounds on which it fires, which
the bank then holds more often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from deltakwt.core.config import CLIP_SAMPLES, FEATURES, SILENCE, UNKNOWN, frames_of
from deltakwt.core.engine import Engine
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import softmax
from deltakwt.data.recordings import Places
from deltakwt.train.augment import MARGIN, RAW_SAMPLES
from deltakwt.train.examples import ShardMaker, TrainingShard
from deltakwt.train.features import masks, plain_features, some_frames
from deltakwt.train.negatives import HardNegatives, floats, sound_places
from deltakwt.train.plan import Plan
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve

FEATURES_FILE, REST_FILE = "bank.npy", "bank.npz"
BATCH = 64  # examples made at once
SEARCHED = 0.5, 0.25  # cuts of speech and of sounds that are searched, per example of the bank
SPREAD_OF = 2000  # examples of which the spread of each feature is taken

Progress = Callable[[str, int, int], None]  # what is done, how much of it, and of how much


class Bank:
    """Makes shards from stored examples. A shard depends on the plan and its number only."""

    def __init__(self, plan: Plan, folder: Path, device: torch.device) -> None:
        self.plan, self.device = plan, device
        try:
            self.features = np.load(folder / FEATURES_FILE, mmap_mode="r")  # (n, frames, 40)
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
        hidden = masks(len(rows), plan.recipe, plan.mask_strength(part), rng, plan.stride)
        chosen = some_frames(hidden.shape[1], plan.token_group(part), rng)
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
    plan: Plan,
    maker: ShardMaker,
    folder: Path,
    progress: Progress = lambda what, done, total: None,
) -> None:
    """Write `plan.bank` examples to `folder`, unless they are there."""
    if (folder / REST_FILE).is_file():
        return
    engines = [_engine(name, plan.labels) for name in plan.teachers]
    if engines:
        _find_hard_negatives(plan, maker, engines[0], progress)
    labels, negative = np.zeros(plan.bank, np.int64), np.zeros(plan.bank, bool)
    answers = np.zeros((plan.bank, len(plan.labels) if engines else 0), np.float32)
    try:
        shape = (plan.bank, frames_of(plan.stride), FEATURES)
        features = np.lib.format.open_memmap(folder / FEATURES_FILE, "w+", np.float16, shape)
        done = 0
        for shard in _shards(maker):
            rows = slice(done, min(done + len(shard.labels), plan.bank))
            count = rows.stop - done
            made = shard.features[:count].cpu().numpy()
            features[rows], labels[rows] = made, shard.labels[:count].cpu()
            negative[rows] = shard.negative[:count].cpu()
            if engines:
                answers[rows] = _taught(engines, shard, plan)[:count]
            done = rows.stop
            progress("making examples", done, plan.bank)
            if done == plan.bank:
                break
        if engines:
            _correct(answers, labels, plan.labels)
        features.flush()
        np.savez(folder / REST_FILE, labels=labels, negative=negative, answers=answers)
    except OSError as error:
        raise DeltakwtError(f"{folder}: cannot write the bank: {error.strerror}") from error


def _engine(name: str, labels: tuple[str, ...]) -> Engine:
    weights = load_weights(resolve(name))
    if weights.config.labels != labels:
        raise DeltakwtError(f"{name}: the teacher must have the labels that are to be learned")
    return Engine(weights.config, weights.tensors)


def _answers(engine: Engine, clips: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities (n, labels) of features (n, frames, 40)."""
    return softmax(np.stack([engine.dense(clip) for clip in clips]))


def _taught(engines: list[Engine], shard: TrainingShard, plan: Plan) -> NDArray[np.float32]:
    """Return the teachers' mean answers (n, labels). Each hears the sound with its own stride."""
    heard = {
        stride: _as_heard_by_teachers(shard, plan, stride)
        for stride in {engine.config.stride for engine in engines}
    }
    answers = [_answers(engine, heard[engine.config.stride]) for engine in engines]
    return np.asarray(np.mean(answers, axis=0))


def _as_heard_by_teachers(shard: TrainingShard, plan: Plan, stride: int) -> NDArray[np.float32]:
    """Return features (n, frames, 40): keywords without added noise, all else as it is learned.

    A teacher with another stride than the model hears all else with the plain front end.
    """
    assert shard.clear is not None
    others = torch.tensor(_not_keywords(plan.labels), device=shard.labels.device)
    is_keyword = ~torch.isin(shard.labels, others)
    clear, noisy = shard.clear, shard.features
    if stride != plan.stride:
        assert shard.sounds is not None
        noisy, clear = (
            plain_features(sound, shard.labels.device, stride) for sound in shard.sounds
        )
    return torch.where(is_keyword[:, None, None], clear, noisy).cpu().numpy()


def _not_keywords(names: tuple[str, ...]) -> list[int]:
    return [index for index, name in enumerate(names) if name in (SILENCE, UNKNOWN)]


def _correct(
    answers: NDArray[np.float32], labels: NDArray[np.int64], names: tuple[str, ...]
) -> None:
    """Replace, in place, answers that find a keyword where there is none by the label."""
    others = _not_keywords(names)
    wrong = np.isin(labels, others) & (answers[:, others].sum(axis=1) < 1 - HardNegatives.FIRED)
    answers[wrong] = np.eye(len(names), dtype=np.float32)[labels[wrong]]


def _find_hard_negatives(plan: Plan, maker: ShardMaker, engine: Engine, progress: Progress) -> None:
    """Run a teacher on cuts of the speech and the sounds; store the places where it fires."""
    negatives, rng = maker.negatives, Generator().manual_seed(plan.seed)
    speech, sounds = negatives.material.speech, negatives.material.sounds
    keywords = [n for n, name in enumerate(plan.labels) if name not in (SILENCE, UNKNOWN)]

    def search(places: NDArray[np.int64], cut: Callable[[int], NDArray[np.int16]]) -> None:
        for start in range(0, len(places), BATCH):
            some = places[start : start + BATCH]
            clips = floats(np.stack([cut(int(place)) for place in some]))
            features = plain_features(clips, torch.device("cpu"), engine.config.stride).numpy()
            scores = _answers(engine, features)[:, keywords].max(1).astype(np.float64)
            negatives.hard.update(some, scores)
            progress("searching for hard negatives", start + len(some), len(places))

    if speech.files:
        count = int(SEARCHED[0] * plan.bank)
        drawn = torch.rand(count, generator=rng, dtype=torch.float64) * speech.samples
        search(drawn.long().numpy(), lambda place: speech.cut(place, CLIP_SAMPLES))
    if sounds:
        first, joined = speech.samples, negatives.sounds
        places = sound_places(sounds, int(SEARCHED[1] * plan.bank), RAW_SAMPLES, rng)
        search(
            first + places.numpy(),
            lambda place: joined.cut_inside(place - first, RAW_SAMPLES)[MARGIN:-MARGIN],
        )


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
