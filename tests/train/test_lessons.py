"""Lessons: every half block learns from a teacher of its shape, with the teacher's own tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deltakwt.core.config import FEATURES, FRAMES, Config
from deltakwt.train.augment import Recipe, cut_off
from deltakwt.train.lessons import lesson
from deltakwt.train.net import Kwt
from deltakwt.train.plan import Plan, from_nothing, growing
from deltakwt.train.run import Request, train

SMALL = Config(dim=16, heads=2, mlp=32, layers=3)


def sounds(count: int = 4) -> torch.Tensor:
    return torch.randn(count, FRAMES, FEATURES, generator=torch.Generator().manual_seed(0))


def entropy(teacher: Kwt) -> float:
    """What remains of the loss when nothing is left to learn."""
    answers = teacher(sounds()).detach().softmax(1)
    return float(-(answers * answers.log()).sum(1).mean())


def test_who_knows_it_all_has_nothing_to_learn() -> None:
    teacher, other = Kwt(SMALL, 1), Kwt(SMALL, 2)
    assert lesson(teacher, teacher, sounds()).item() == pytest.approx(entropy(teacher), abs=1e-5)
    assert lesson(other, teacher, sounds()).item() > 0.5 + entropy(teacher)


def test_every_weight_of_the_pupil_is_taught_and_none_of_the_teacher() -> None:
    pupil, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    lesson(pupil, teacher, sounds()).backward()
    assert all(tensor.grad is not None and tensor.grad.any() for tensor in pupil.parameters())
    assert all(tensor.grad is None for tensor in teacher.parameters())


def test_halves_learn_without_waiting_for_the_halves_before_them() -> None:
    """The last block's error does not change with the first block's weights."""
    pupil, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    last = pupil.tensors["blocks.2.mlp_in.weight"]

    def gradient() -> torch.Tensor:
        loss = lesson(pupil, teacher, sounds())
        return torch.autograd.grad(loss, last)[0]

    before = gradient()
    with torch.no_grad():
        pupil.tensors["blocks.0.q.weight"].mul_(3)
    assert torch.equal(gradient(), before)


def test_lessons_alone_make_the_pupil_answer_as_the_teacher_does() -> None:
    """Never asked for an answer from sound, it gives the teacher's for sounds it never heard."""
    torch.manual_seed(0)
    pupil, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    heard = torch.randn(64, FRAMES, FEATURES)

    def apart() -> float:
        with torch.no_grad():
            return ((pupil(heard) - teacher(heard)).square().mean() / teacher(heard).var()).item()

    assert apart() > 1
    optimiser = torch.optim.Adam(pupil.parameters(), lr=1e-2)
    for _ in range(250):
        optimiser.zero_grad()
        lesson(pupil, teacher, torch.randn(4, FRAMES, FEATURES)).backward()
        optimiser.step()
    assert apart() < 0.4


def test_a_teacher_of_another_shape_gives_answers_only(toy_plan: Plan, tmp_path: Path) -> None:
    wide = replace(toy_plan, size="wide", epochs=1)
    train(Request(tmp_path / "teacher", wide, cache=tmp_path))
    plan = replace(toy_plan, teacher=str(tmp_path / "teacher"), epochs=1, lessons=0.5)
    made = train(Request(tmp_path / "pupil", plan, cache=tmp_path))
    assert made is not None
    assert made.training["plan"]["lessons"] == 0.0


def test_lessons_are_for_who_starts_from_nothing_and_has_a_teacher() -> None:
    assert from_nothing(epochs=None, rate=None, teacher="arm").lessons > 0
    assert from_nothing(epochs=None, rate=None).lessons == 0
    assert growing(epochs=None, rate=None, teacher="arm", size="kwt-3").lessons == 0


def test_what_was_copied_is_treated_gently() -> None:
    copied = from_nothing(epochs=None, rate=None, teacher="arm")
    grown = growing(epochs=None, rate=None, teacher="arm", size="kwt-3")
    alone = from_nothing(epochs=None, rate=None)
    for plan in (copied, grown):
        assert plan.token_group(plan.lessons) == 1  # all tokens
        assert plan.rate <= alone.rate / 10
        assert plan.teacher_share == 0.9


def test_the_learning_rate_starts_again_after_the_lessons() -> None:
    plan = Plan(lessons=0.2, lessons_rate=3e-3, rate=1e-3)
    rates = [plan.learning_rate(step / 1000) for step in range(1000)]
    assert max(rates[:200]) == pytest.approx(3e-3, rel=1e-2)
    assert rates[199] < 1e-5
    assert max(rates[200:]) == pytest.approx(1e-3, rel=1e-2)


def test_few_words_are_cut_in_half_and_the_others_stay() -> None:
    away = cut_off(10_000, Recipe(cut_chance=0.1), torch.Generator().manual_seed(0))
    moved = away[away != 0].abs() / 16
    assert len(moved) == pytest.approx(1000, abs=120)
    assert moved.min() >= 430
    assert moved.max() <= 600
