"""Examples: which clips an epoch holds, and how they become the input of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from deltakwt.core.config import CLIP_SAMPLES, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.recordings import Places, Recordings
from deltakwt.data.speech_commands import split_of
from deltakwt.train import augment
from deltakwt.train.augment import MARGIN, RAW_SAMPLES
from deltakwt.train.features import front_end_settings, masks, mel_energies, mfcc, some_frames
from deltakwt.train.negatives import HardNegatives, Negatives, TrainingSound, floats, sound_cuts
from deltakwt.train.plan import Plan

SILENT, SPEECH = -1, -2  # in place of a row: a sound or a cut of speech that is drawn later
FEWEST_CLIPS = 5  # training clips of a word
SOFT_SHIFT = 4_000  # a teacher's answer holds for a word that moved by less than this (samples)


@dataclass(frozen=True)
class WordClips:
    """The word clips of one split, by label."""

    labels: tuple[str, ...]
    wanted: Places  # rows of the keyword clips
    wanted_label: Places  # their labels
    others: Places  # rows of all other words

    def epoch(
        self,
        seed: int,
        epoch: int,
        unknown_share: float = 0.1,
        silence_share: float = 0.1,
        speech_share: float = 0.0,
    ) -> tuple[Places, Places]:
        """Return the rows (or SILENT or SPEECH) and the labels of one epoch, shuffled.

        The shares are relative to the number of keyword clips. Other words change every epoch.
        """
        rng = np.random.default_rng((seed, epoch))
        rows, labels = [self.wanted], [self.wanted_label]

        def add(part: Places, label: str) -> None:
            rows.append(part)
            labels.append(np.full(len(part), self.labels.index(label)))

        def count(share: float) -> int:
            return int(np.ceil(share * len(self.wanted)))

        if UNKNOWN in self.labels and len(self.others):
            number = min(count(unknown_share), len(self.others))
            add(rng.choice(self.others, number, replace=False), UNKNOWN)
        if UNKNOWN in self.labels and speech_share:
            add(np.full(count(speech_share), SPEECH), UNKNOWN)
        if SILENCE in self.labels:
            add(np.full(count(silence_share), SILENT), SILENCE)
        order = rng.permutation(sum(map(len, rows)))
        return np.concatenate(rows)[order], np.concatenate(labels)[order]


def clips_of_split(clips: Recordings, labels: Sequence[str], split: str) -> WordClips:
    """Return the clips of one split by label. The split is "train", "val" or "test"."""
    number = {label: index for index, label in enumerate(labels)}
    inside = np.array([split_of(file) == split for file in clips.files], bool)
    label = np.array([number.get(file.split("/")[0], -1) for file in clips.files], np.int64)
    wanted = np.flatnonzero(inside & (label >= 0))
    return WordClips(tuple(labels), wanted, label[wanted], np.flatnonzero(inside & (label < 0)))


def check(training: WordClips, validation: WordClips, has_speech: bool = False) -> None:
    """Raise an error if the data cannot teach the labels."""
    for index, word in enumerate(training.labels):
        clips = int(np.sum(training.wanted_label == index))
        if word not in (SILENCE, UNKNOWN) and clips < FEWEST_CLIPS:
            raise DeltakwtError(
                f"word {word!r}: {clips} training clips, at least {FEWEST_CLIPS} are needed;"
                " record more, leave the word out, or make some with --synth"
            )
    if UNKNOWN in training.labels and not len(training.others) and not has_speech:
        raise DeltakwtError(
            f"no clips of other words, so {UNKNOWN} cannot be learned;"
            " add folders of other words, --speech or --synth"
        )
    if not len(validation.wanted):
        raise DeltakwtError(
            "no clip falls into the validation split (a tenth of the speakers); add more clips"
        )


@dataclass(frozen=True)
class TrainingShard:
    """The input of one forward pass."""

    features: Tensor  # (B, frames, 40)
    clear: Tensor | None  # (B, frames, 40) without noise, plain front end; for teachers
    labels: Tensor  # (B,)
    negative: Tensor  # (B,) bool: running speech or silence, whose weight in the loss grows
    taught: Tensor  # (B,) bool: a teacher's answer is known
    answers: Tensor  # (B, labels) the teachers' answers; zero where not known
    places: NDArray[np.int64]  # (B,) place in the speech or the sounds, -1 for other examples
    chosen: Tensor | None  # frames to use; None: all
    scale: float  # factor of the thresholds in the loop
    sounds: tuple[Tensor, Tensor] | None = None  # (B, 16000) with and without noise, for a bank


class ShardMaker:
    """Makes shards. A shard depends on the plan, its number and the hard negatives only."""

    def __init__(
        self,
        plan: Plan,
        task: WordClips,
        material: TrainingSound,
        hard: HardNegatives,
        device: torch.device,
        answers: tuple[Places, Tensor] | None = None,  # rows, and the teachers' answers to them
    ) -> None:
        self.plan, self.task, self.material = plan, task, material
        self.device, self.negatives = device, Negatives(plan, material, hard)
        self.unknown = plan.labels.index(UNKNOWN) if UNKNOWN in plan.labels else -1
        self.answers = torch.zeros(0, len(plan.labels)) if answers is None else answers[1]
        self.answer_of = {} if answers is None else {int(r): n for n, r in enumerate(answers[0])}

    def epoch(self, epoch: int) -> tuple[Places, Places]:
        """Return the rows and the labels of one epoch, shuffled."""
        plan = self.plan
        shares = plan.unknown_share, plan.silence_share, plan.speech_share
        return self.task.epoch(plan.seed, epoch, *shares)

    def shard(self, rows: Places, labels: Places, number: int, part: float) -> TrainingShard:
        """Return shard `number` of the run, at `part` (0 to 1) of it."""
        plan, recipe = self.plan, self.plan.recipe
        rng = Generator().manual_seed((plan.seed << 40) + number)
        word, speech = torch.from_numpy(rows >= 0), torch.from_numpy(rows == SPEECH)
        answer = torch.from_numpy(labels)
        raw, places = self._raw(rows, rng)
        rate = augment.stretch_rates(len(rows), recipe, rng)
        keyword = word & (answer != self.unknown)
        shift, cut = self._shifts(raw, keyword, speech, rate, rng)
        clear = augment.place_clips(raw, shift, rate)
        clear = augment.add_rooms(clear, self.material.rooms, recipe.room_chance, rng)
        background, talker = self.negatives.backgrounds(len(rows), rng)
        ratio = augment.snr_levels(talker, recipe, rng)
        ratio = torch.where(word | speech, ratio, torch.inf)
        clips = augment.mix(clear, background, ratio)
        clips = augment.band_limit(clips, recipe.band_chance, rng)
        clips = augment.change_gain(clips, recipe, rng)
        clips = augment.add_hiss(clips, recipe, rng)
        clips = augment.round_to_16_bits(clips, recipe, rng)
        taught, answers = self._answers(rows, keyword & ~cut & (shift.abs() < SOFT_SHIFT))

        smooth, floor = front_end_settings(len(rows), recipe, rng)
        hidden = masks(len(rows), recipe, plan.mask_strength(part), rng, plan.stride)
        chosen = some_frames(hidden.shape[1], plan.token_group(part), rng)
        low, high = plan.delta_scale
        scale = low + (high - low) * float(torch.rand((), generator=rng))
        to = self.device
        features = mfcc(mel_energies(clips.to(to), plan.stride), smooth.to(to), floor.to(to))
        is_clear = part < plan.layerwise or plan.bank
        return TrainingShard(
            features.masked_fill(hidden.to(to), 0.0),
            mfcc(mel_energies(clear.to(to), plan.stride)) if is_clear else None,
            torch.where(cut, self.unknown, answer).to(to),
            (speech | ~(word | speech)).to(to),
            taught.to(to),
            answers.to(to),
            places,
            None if chosen is None else chosen.to(to),
            scale,
            (clips, clear) if plan.bank else None,
        )

    def _raw(self, rows: Places, rng: Generator) -> tuple[Tensor, NDArray[np.int64]]:
        """Return sound (B, 24000) with a margin at both ends, and the places of the negatives."""
        raw = torch.zeros(len(rows), RAW_SAMPLES)
        raw[:, MARGIN:-MARGIN] = floats(self.material.clips.clips(rows))
        places = np.full(len(rows), -1)
        if len(silent := np.flatnonzero(rows == SILENT)):
            raw[silent], places[silent] = self.negatives.silence(len(silent), rng)
        if len(spoken := np.flatnonzero(rows == SPEECH)):
            raw[spoken], places[spoken] = self.negatives.speech(len(spoken), rng)
        return raw, places

    def _shifts(
        self, raw: Tensor, keyword: Tensor, speech: Tensor, rate: Tensor, rng: Generator
    ) -> tuple[Tensor, Tensor]:
        """Return (B,) samples to move each clip by, and (B,) bool: a keyword that is cut off."""
        recipe, count = self.plan.recipe, len(raw)
        extent = augment.word_extent(raw[:, MARGIN:-MARGIN])
        whole = augment.shifts(extent, rate, recipe, rng)
        away = augment.cut_off_shifts(extent, rate, recipe, rng)
        free = torch.where(speech, 0.0, augment.free_shifts(count, recipe, rng))
        chance = recipe.cut_chance if self.unknown >= 0 else 0.0
        cut = keyword & (torch.rand(count, generator=rng) < chance)
        return torch.where(keyword, torch.where(cut, away, whole), free), cut

    def _answers(self, rows: Places, usable: Tensor) -> tuple[Tensor, Tensor]:
        """Return (B,) bool and (B, labels): the teachers' answers where they are known."""
        index = torch.tensor([self.answer_of.get(int(row), -1) for row in rows])
        taught = usable & (index >= 0)
        answers = torch.zeros(len(rows), len(self.plan.labels))
        answers[taught] = self.answers[index[taught]]
        return taught, answers


def validation_clips(
    material: TrainingSound, words: WordClips, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return (n, 16000) clips and labels of a whole split; 10% unknown, 10% silence.

    Half of the silence is digital zero, half recorded sound at all levels.
    """
    rows, labels = words.epoch(seed, 0)
    clips = floats(material.clips.clips(rows))
    silent = torch.from_numpy(rows == SILENT).nonzero()[:, 0][::2]
    rng = Generator().manual_seed(seed)
    if len(silent):
        level = 10 ** (-2 * torch.rand(len(silent), 1, generator=rng))
        clips[silent] = level * sound_cuts(material.sounds, len(silent), CLIP_SAMPLES, rng)
    return clips, torch.from_numpy(labels)


def validation_speech(material: TrainingSound, count: int, seed: int = 0) -> Tensor:
    """Return (count, 16000) cuts of validation speech, or no cuts if there is no speech."""
    if not material.speech.files:
        return torch.zeros(0, CLIP_SAMPLES)
    places = np.random.default_rng(seed).integers(0, material.speech.samples, count)
    return floats(np.stack([material.speech.cut(int(at), CLIP_SAMPLES) for at in places]))
