"""Training with a stride: features, masks, and teachers that have a different stride."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from train.test_training import run

from deltakwt.core import frontend
from deltakwt.core.config import SILENCE, UNKNOWN
from deltakwt.core.setting import PLAIN, FrontEndSetting
from deltakwt.train.augment import Recipe
from deltakwt.train.bank import Bank
from deltakwt.train.distil import as_tensors
from deltakwt.train.features import masks, mel_energies, mfcc, plain_features
from deltakwt.train.net import Kwt
from deltakwt.train.plan import Plan
from deltakwt.train.training import at_stride
from deltakwt.weights.folder import load_weights
from deltakwt.weights.registry import resolve


@pytest.mark.parametrize("front_end", [PLAIN, FrontEndSetting(smooth=True, floor=2.0)], ids=str)
def test_features_are_those_of_the_product(front_end: FrontEndSetting) -> None:
    sounds = np.random.default_rng(0).normal(0, 0.1, (3, 16_000)).astype(np.float32)
    smooth, floor = torch.full((3,), front_end.smooth), torch.full((3,), front_end.floor)
    ours = mfcc(mel_energies(torch.from_numpy(sounds), 2), smooth, floor)
    theirs = np.stack([frontend.mfcc(sound, front_end, 2) for sound in sounds])
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-3)
    assert plain_features(torch.zeros(0, 16_000), torch.device("cpu"), 2).shape == (0, 49, 40)


def test_masks_hide_as_much_time_as_without_a_stride() -> None:
    recipe = Recipe(feature_masks=0)
    shares = [
        float(masks(500, recipe, 1.0, torch.Generator().manual_seed(1), stride).float().mean())
        for stride in (1, 2)
    ]
    assert shares[1] == pytest.approx(shares[0], rel=0.1)


def test_a_model_with_a_stride_learns_from_a_teacher_without(
    toy_plan: Plan, tmp_path: Path
) -> None:
    """The teacher of a bank hears each clip with its own frames, and keywords without noise."""
    run(tmp_path / "teacher", replace(toy_plan, epochs=12))
    drowned = replace(toy_plan.recipe, background_chance=1.0, loud_chance=1.0, snr_db=(-40, -39))
    plan = replace(toy_plan, stride=2, epochs=1, bank=200, recipe=drowned)
    plan = replace(plan, teachers=(str(tmp_path / "teacher"),))
    run(tmp_path / "student", plan)
    bank = Bank(plan, tmp_path / "student", torch.device("cpu"))
    assert bank.features.shape == (200, 49, 40)
    others = [plan.labels.index(SILENCE), plan.labels.index(UNKNOWN)]
    keywords = ~np.isin(bank.labels, others)
    assert np.mean((bank.answers.argmax(axis=1) == bank.labels)[keywords]) > 0.8


def test_a_model_that_starts_from_one_without_a_stride_takes_every_second_frame() -> None:
    source = load_weights(resolve("kwt-1"))
    made = at_stride(source, 2)
    features = torch.randn(3, 98, 40, generator=torch.Generator().manual_seed(4))
    whole, half = Kwt(source.config), Kwt(made.config)
    whole.load(as_tensors(source.tensors))
    half.load(as_tensors(made.tensors))
    expected = whole(features, torch.arange(0, 98, 2))
    torch.testing.assert_close(half(features[:, ::2]), expected)


def test_a_toy_task_is_learned(toy_plan: Plan, tmp_path: Path) -> None:
    plan = replace(toy_plan, stride=2, epochs=16, masking=0.3, token_groups=((0.6, 2),))
    made = run(tmp_path / "run", plan)
    assert made.training["validation"] > 0.8
    assert load_weights(tmp_path / "run").config == plan.config() == made.config
    assert (made.config.frames, made.config.stride) == (49, 2)
    assert Plan.from_json(plan.to_json()) == plan
