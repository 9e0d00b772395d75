"""Sound that holds no keyword: running speech, other sounds, silence and backgrounds.

Places on which the model fired (hard negatives) are remembered and replayed until they are learned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.data.recordings import Recordings, join
from deltakwt.train import augment
from deltakwt.train.augment import MARGIN, RAW_SAMPLES
from deltakwt.train.plan import Plan

BABBLE = (3, 8)  # voices: at least 3, fewer than 8


@dataclass(frozen=True)
class TrainingSound:
    """All sound of one split: words and, if given, speech, other sounds and rooms."""

    clips: Recordings  # words of all splits; `WordClips` says which belong to a split
    speech: Recordings = field(default_factory=Recordings)
    sounds: tuple[Recordings, ...] = ()  # one per folder, each drawn equally often
    rooms: Tensor | None = None  # (n, 12800) impulse responses


class HardNegatives:
    """Places in the training speech and sounds on which the model fired, replayed until learned.

    Places in the speech come first; those in the sounds follow.
    """

    FIRED, LEARNED = 0.12, 0.04  # keyword probability that adds a place, and that removes it
    MOST, DROPPED = 30_000, 6_000  # a full pool drops its easiest places
    FEWEST = 200  # places needed before any is replayed
    JITTER = 800  # samples by which a replayed place moves

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}  # place -> last keyword probability
        self._order: list[int] | None = None

    def update(self, places: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Add, keep or remove the places of a batch by the model's keyword probabilities."""
        for place, score in zip(places.tolist(), scores.tolist(), strict=True):
            if score > self.FIRED or (place in self.scores and score >= self.LEARNED):
                self.scores[place] = score
            else:
                self.scores.pop(place, None)
        if len(self.scores) > self.MOST:
            for place in sorted(self.scores, key=lambda key: self.scores[key])[: self.DROPPED]:
                del self.scores[place]
        self._order = None

    def replay(self, places: Tensor, share: float, within: range, rng: Generator) -> Tensor:
        """Return (B,) bool and replace that `share` of `places` in place by places of the pool.

        Only places `within` a range are used, if there are enough of them.
        """
        replayed = torch.rand(len(places), generator=rng) < share
        index = torch.rand(len(places), generator=rng, dtype=torch.float64)
        self._order = self._order or sorted(self.scores)
        first, last = (bisect_left(self._order, end) for end in (within.start, within.stop))
        if last - first <= self.FEWEST:
            return torch.zeros_like(replayed)
        pool = torch.tensor(self._order[first:last])
        places[replayed] = pool[(index * len(pool)).long()][replayed]
        return replayed

    def tensors(self) -> dict[str, Tensor]:
        """Return the pool as tensors for the checkpoint."""
        places = torch.tensor(list(self.scores), dtype=torch.int64)
        scores = torch.tensor(list(self.scores.values()), dtype=torch.float64)
        return {"places": places, "scores": scores}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> HardNegatives:
        pool = cls()
        pairs = zip(tensors["places"].tolist(), tensors["scores"].tolist(), strict=True)
        pool.scores = dict(pairs)
        return pool


class Negatives:
    """Draws negatives from the sound of the training split."""

    def __init__(self, plan: Plan, material: TrainingSound, hard: HardNegatives) -> None:
        self.plan, self.material, self.hard = plan, material, hard
        self.sounds = join(material.sounds)

    def speech(self, count: int, rng: Generator) -> tuple[Tensor, NDArray[np.int64]]:
        """Return cuts (count, 24000) of running speech, and their places; -1 for a short piece."""
        speech = self.material.speech
        places = (torch.rand(count, generator=rng, dtype=torch.float64) * speech.samples).long()
        self.hard.replay(places, self.plan.hard_share, range(speech.samples), rng)
        starts = places + self._jitter(count, rng) - MARGIN
        cuts = floats(np.stack([speech.cut(at, RAW_SAMPLES) for at in starts.tolist()]))
        piece = torch.rand(count, generator=rng) < self.plan.recipe.piece_chance
        cuts = torch.where(piece[:, None], augment.isolate_pieces(cuts, rng), cuts)
        return cuts, torch.where(piece, -1, places).numpy()

    def silence(self, count: int, rng: Generator) -> tuple[Tensor, NDArray[np.int64]]:
        """Return silence (count, 24000) and the places of recorded sounds; -1 for the others.

        Sounds on which the model fired are replayed, less quiet than the others.
        """
        if not self.sounds.files:
            return silence_of(None, count, rng)[0], np.full(count, -1)
        first, end = (self.material.speech.samples + n for n in (0, self.sounds.samples))
        places = first + sound_places(self.material.sounds, count, RAW_SAMPLES, rng)
        hard = self.hard.replay(places, self.plan.hard_share, range(first, end), rng)
        starts = (places - first + self._jitter(count, rng)).clamp(0, self.sounds.samples - 1)
        cuts = [self.sounds.cut_inside(at, RAW_SAMPLES) for at in starts.tolist()]
        clips, recorded = silence_of(floats(np.stack(cuts)), count, rng, hard)
        return clips, torch.where(recorded, places, -1).numpy()

    def backgrounds(self, count: int, rng: Generator) -> tuple[Tensor, Tensor]:
        """Return (B, 16000) sounds (50%), babble (30%), a talker (10%), noise; (B,) talker."""
        kind = torch.rand(count, generator=rng)
        speech = self.material.speech
        background = sound_cuts(self.material.sounds, count, CLIP_SAMPLES, rng)
        noise = 0.03 * augment.coloured_noise(count, CLIP_SAMPLES, rng)
        background = torch.where(kind[:, None] < 0.9, background, noise)
        voices = torch.randint(*BABBLE, (count,), generator=rng)
        talker = (
            (kind >= 0.8) & (kind < 0.9) if speech.files else torch.zeros(count, dtype=torch.bool)
        )
        for row in torch.nonzero((kind >= 0.5) & (kind < 0.9))[:, 0].tolist():
            if not speech.files:
                break
            number = 1 if talker[row] else int(voices[row])
            places = torch.rand(number, generator=rng, dtype=torch.float64) * speech.samples
            cuts = floats(np.stack([speech.cut(int(at), CLIP_SAMPLES) for at in places]))
            level = cuts.square().mean(1, keepdim=True).sqrt() + 50 / 32768
            background[row] = (cuts / level).sum(0)
        return background, talker

    def _jitter(self, count: int, rng: Generator) -> Tensor:
        return torch.randint(-self.hard.JITTER, self.hard.JITTER, (count,), generator=rng)


def sound_places(sounds: Sequence[Recordings], count: int, samples: int, rng: Generator) -> Tensor:
    """Return (count,) places in the joined sounds: each folder and each file equally often."""
    first = np.cumsum([0, *(folder.samples for folder in sounds)])
    places = []
    for folder, file, part in torch.rand(count, 3, generator=rng, dtype=torch.float64).tolist():
        number = int(folder * len(sounds))
        chosen = sounds[number]
        inside = chosen.place_in_file(int(file * len(chosen.files)), part, samples)
        places.append(int(first[number]) + inside)
    return torch.tensor(places)


def sound_cuts(sounds: Sequence[Recordings], count: int, samples: int, rng: Generator) -> Tensor:
    """Return cuts (count, samples) of the sounds; noise if there are none."""
    if not sounds:
        return 0.3 * augment.coloured_noise(count, samples, rng)
    joined, places = join(sounds), sound_places(sounds, count, samples, rng)
    return floats(np.stack([joined.cut_inside(at, samples) for at in places.tolist()]))


def silence_of(
    recorded: Tensor | None, count: int, rng: Generator, loud: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return clips of silence (count, 24000), and which of them are recorded sounds (count,).

    78% are recorded sounds, 10% synthetic noise, 12% digital zero. Levels are drawn down to -80 dB:
    a quiet room is silence, and so is a running tap. Sounds that are marked as `loud` (count,) stay
    recorded sounds, and above -20 dB.
    """
    kind = torch.rand(count, 1, generator=rng)
    drawn = torch.rand(count, 1, generator=rng)
    exponent = -4 * drawn**1.5
    if loud is not None:
        kind = torch.where(loud[:, None], 0.0, kind)
        exponent = torch.where(loud[:, None], -drawn, exponent)
    noise = 0.1 * augment.coloured_noise(count, RAW_SAMPLES, rng)
    clips = torch.where(kind < 0.78, noise if recorded is None else recorded, noise)
    clips = torch.where(kind < 0.88, clips * 10**exponent, 0.0).clamp(-1, 1)
    return clips, kind[:, 0] < 0.78


def floats(samples: NDArray[np.int16]) -> Tensor:
    """Return 16-bit samples as numbers from -1 to 1."""
    return torch.from_numpy(samples.astype(np.float32)).div_(32768)
