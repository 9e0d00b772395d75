"""A shard is what one forward needs, and what a teacher hears of the same clips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from deltakwt.train.augment import Recipe
from deltakwt.train.cache import open_cache
from deltakwt.train.plan import Plan
from deltakwt.train.shards import Shard, Source
from deltakwt.train.task import make_task


def shard(plan: Plan, home: Path, **recipe: float) -> Shard:
    cache = open_cache([Path(folder) for folder in plan.data], home)
    task = make_task(cache, plan.labels, "train")
    made = replace(plan, masking=0.0, recipe=Recipe(steady_chance=0.0, gain_chance=0.0, **recipe))
    source = Source(made, cache, torch.device("cpu"))
    return source.shard(task.wanted[:8], np.asarray(task.wanted_label[:8]), 7, 0.0)


def test_a_teacher_hears_the_words_without_the_noise(toy_plan: Plan, tmp_path: Path) -> None:
    plan = replace(toy_plan, teacher="somebody")
    noisy = shard(plan, tmp_path, noise_chance=1.0, loud_noise_chance=1.0)
    quiet = shard(plan, tmp_path, noise_chance=0.0)
    assert noisy.clear is not None
    torch.testing.assert_close(noisy.clear, quiet.features)
    assert (noisy.features - quiet.features).abs().mean() > 1


def test_without_a_teacher_nothing_is_computed_for_one(toy_plan: Plan, tmp_path: Path) -> None:
    assert shard(toy_plan, tmp_path).clear is None
