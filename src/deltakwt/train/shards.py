"""From rows of the cache to what one forward needs: augmented, as features, on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deltakwt.core.config import FRAMES, UNKNOWN
from deltakwt.train import augment
from deltakwt.train.cache import Cache
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.plan import Plan
from deltakwt.train.task import SILENT, Rows


@dataclass(frozen=True)
class Shard:
    """A few clips, ready for the net."""

    features: Tensor  # (B, 98, 40) any front end, parts hidden
    clear: Tensor | None  # (B, 98, 40) whole, without noise, plain: what a teacher hears
    labels: Tensor  # (B,)
    certain: Tensor  # (B,) bool: the label is right whatever a teacher says
    chosen: Tensor | None  # frames to use; None: all
    scale: float  # of the thresholds in the loop


class Source:
    """Makes shards; a shard depends on its number and the seed only."""

    def __init__(self, plan: Plan, cache: Cache, device: torch.device) -> None:
        self.plan, self.cache, self.device = plan, cache, device
        if UNKNOWN in plan.labels:
            self.unknown, self.recipe = plan.labels.index(UNKNOWN), plan.recipe
        else:
            self.unknown, self.recipe = 0, replace(plan.recipe, cut_chance=0.0)

    def shard(self, rows: Rows, labels: Rows, number: int, part: float) -> Shard:
        """Shard `number` of the run, at `part` (0 to 1) of it."""
        plan, recipe = self.plan, self.recipe
        rng = torch.Generator().manual_seed((plan.seed << 40) + number)
        silent, answer = torch.from_numpy(rows == SILENT), torch.from_numpy(labels)
        away = augment.cut_off(len(rows), recipe, rng)
        clips = augment.move_and_stretch(self.cache.clips(rows), recipe, rng, away)
        clear = augment.rooms(clips, recipe, rng)
        clips = augment.add_noise(clear, self.cache.noises, recipe, rng)
        half = (away[:, 0] != 0) & ~silent  # of a word is not that word
        if silent.any():
            clips[silent] = augment.silence(self.cache.noises, int(silent.sum()), rng)
        smooth, floor = augment.front_end_settings(len(rows), recipe, rng)
        hidden = augment.masks(len(rows), recipe, plan.mask_strength(part), rng)
        chosen = augment.some_frames(FRAMES, plan.token_group(part), rng)
        low, high = plan.delta_scale
        scale = low + (high - low) * float(torch.rand((), generator=rng))

        to = self.device
        features = mfcc(mel_energies(clips.to(to)), smooth.to(to), floor.to(to))
        return Shard(
            features.masked_fill(hidden.to(to), 0.0),
            mfcc(mel_energies(clear.to(to))) if plan.teacher else None,
            torch.where(half, self.unknown, answer).to(to),
            (silent | half).to(to),
            None if chosen is None else chosen.to(to),
            scale,
        )
