"""From rows of the cache to what one forward needs: augmented, as features, on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deltakwt.config import FRAMES
from deltakwt.train import augment
from deltakwt.train.cache import Cache
from deltakwt.train.features import mel_energies, mfcc
from deltakwt.train.plan import Plan
from deltakwt.train.task import SILENT, Rows


@dataclass(frozen=True)
class Shard:
    """A few clips, ready for the net."""

    features: Tensor  # (B, 98, 40) any front end, parts hidden
    plain: Tensor  # (B, 98, 40) of the same sound, whole: what a teacher hears
    labels: Tensor  # (B,)
    silent: Tensor  # (B,) bool
    chosen: Tensor | None  # frames to use; None: all
    scale: float  # of the thresholds in the loop


class Source:
    """Makes shards; a shard depends on its number and the seed only."""

    def __init__(self, plan: Plan, cache: Cache, device: torch.device) -> None:
        self.plan, self.cache, self.device = plan, cache, device

    def shard(self, rows: Rows, labels: Rows, number: int, part: float) -> Shard:
        """Shard `number` of the run, at `part` (0 to 1) of it."""
        plan, recipe = self.plan, self.plan.recipe
        rng = torch.Generator().manual_seed((plan.seed << 40) + number)
        clips = augment.move_and_stretch(self.cache.clips(rows), recipe, rng)
        clips = augment.rooms(clips, recipe, rng)
        clips = augment.add_noise(clips, self.cache.noises, recipe, rng)
        silent = torch.from_numpy(rows == SILENT)
        if silent.any():
            clips[silent] = augment.silence(self.cache.noises, int(silent.sum()), rng)
        smooth, floor = augment.front_end_settings(len(rows), rng)
        hidden = augment.masks(len(rows), recipe, plan.mask_strength(part), rng)
        chosen = augment.some_frames(FRAMES, plan.token_group(part), rng)
        low, high = plan.delta_scale
        scale = low + (high - low) * float(torch.rand((), generator=rng))

        to = self.device
        energies = mel_energies(clips.to(to))
        features = mfcc(energies, smooth.to(to), floor.to(to)).masked_fill(hidden.to(to), 0.0)
        return Shard(
            features,
            mfcc(energies),
            torch.from_numpy(labels).to(to),
            silent.to(to),
            None if chosen is None else chosen.to(to),
            scale,
        )
