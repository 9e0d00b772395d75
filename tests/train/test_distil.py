"""Layer-wise distillation, hints and stored answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deltakwt.core.config import FEATURES, FRAMES, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.data.cache import open_clips
from deltakwt.train import distil
from deltakwt.train.distil import HINT, hint_loss, hint_maps, layerwise_loss, soft_answers
from deltakwt.train.net import Kwt
from deltakwt.train.plan import (
    Plan,
    parse_shape,
    plan_from_model,
    plan_from_random,
    plan_from_widened,
    with_negatives,
)
from deltakwt.train.training import TrainingRequest, train
from deltakwt.weights.folder import Weights, save_folder

SMALL = Config(dim=16, heads=2, mlp=32, layers=3)
WIDE = Config(dim=48, heads=3, mlp=64, layers=3)


def sounds(count: int = 4) -> torch.Tensor:
    return torch.randn(count, FRAMES, FEATURES, generator=torch.Generator().manual_seed(0))


def entropy(teacher: Kwt) -> float:
    """Return the smallest possible loss: the entropy of the teacher's answers."""
    answers = teacher(sounds()).detach().softmax(1)
    return float(-(answers * answers.log()).sum(1).mean())


def test_a_copy_of_the_teacher_has_the_smallest_loss() -> None:
    teacher, other = Kwt(SMALL, 1), Kwt(SMALL, 2)
    loss = layerwise_loss(teacher, teacher, sounds())
    assert loss.item() == pytest.approx(entropy(teacher), abs=1e-5)
    assert layerwise_loss(other, teacher, sounds()).item() > 0.5 + entropy(teacher)


def test_every_weight_of_the_student_gets_a_gradient_and_none_of_the_teacher() -> None:
    student, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    layerwise_loss(student, teacher, sounds()).backward()
    assert all(tensor.grad is not None and tensor.grad.any() for tensor in student.parameters())
    assert all(tensor.grad is None for tensor in teacher.parameters())


def test_half_blocks_learn_independently() -> None:
    """The last block's gradient does not change with the first block's weights."""
    student, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    last = student.tensors["blocks.2.mlp_in.weight"]

    def gradient() -> torch.Tensor:
        return torch.autograd.grad(layerwise_loss(student, teacher, sounds()), last)[0]

    before = gradient()
    with torch.no_grad():
        student.tensors["blocks.0.q.weight"].mul_(3)
    assert torch.equal(gradient(), before)


def test_layerwise_distillation_alone_gives_the_teachers_answers() -> None:
    torch.manual_seed(0)
    student, teacher = Kwt(SMALL, 2), Kwt(SMALL, 1)
    unseen = torch.randn(64, FRAMES, FEATURES)

    def distance() -> float:
        with torch.no_grad():
            error = (student(unseen) - teacher(unseen)).square().mean()
            return (error / teacher(unseen).var()).item()

    assert distance() > 1
    optimiser = torch.optim.Adam(student.parameters(), lr=1e-2)
    for _ in range(250):
        optimiser.zero_grad()
        layerwise_loss(student, teacher, torch.randn(4, FRAMES, FEATURES)).backward()
        optimiser.step()
    assert distance() < 0.4


def test_hints_bring_the_teachers_tokens_into_a_wide_model() -> None:
    torch.manual_seed(0)
    wide, teacher = Kwt(WIDE, 2), Kwt(SMALL, 1)
    maps = {name: t.requires_grad_() for name, t in hint_maps(WIDE, SMALL, 0).items()}
    optimiser = torch.optim.Adam([*wide.parameters(), *maps.values()], lr=5e-3)
    losses = []
    for _ in range(80):
        x = torch.randn(4, FRAMES, FEATURES)
        with torch.no_grad():
            shown = teacher.layers(x)
        loss = hint_loss(wide.layers(x), maps, shown)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(m.grad is not None and m.grad.any() for m in maps.values())


def test_a_teacher_with_fewer_layers_gives_hints_to_all_blocks() -> None:
    deep = Config(dim=32, heads=2, mlp=32, layers=6)
    net, teacher, maps = Kwt(deep), Kwt(SMALL), hint_maps(deep, SMALL, 0)
    hint_loss(net.layers(sounds()), maps, [t.detach() for t in teacher.layers(sounds())]).backward()
    for layer in range(6):
        weight = net.tensors[f"blocks.{layer}.mlp_out.weight"]
        assert weight.grad is not None
        assert weight.grad.any()
    assert set(maps) == {f"{HINT}{layer}.weight" for layer in range(6)}
    with pytest.raises(DeltakwtError, match="must be narrower"):
        hint_maps(SMALL, WIDE, 0)


def test_the_weight_of_hints_fades_to_nothing() -> None:
    plan = Plan(hints="kwt-1", hint_weight=3.0, hint_until=0.4)
    assert plan.weight_of_hints(0.0) == 3.0
    assert plan.weight_of_hints(0.2) == pytest.approx(1.5)
    assert plan.weight_of_hints(0.4) == plan.weight_of_hints(0.9) == 0.0
    assert Plan().weight_of_hints(0.0) == 0.0


def test_answers_are_computed_once_and_depend_on_teachers_and_clips(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = ("_silence_", "_unknown_", "low", "high")
    names = []
    for seed in (1, 2):
        net = Kwt(replace(SMALL, labels=labels), seed)
        arrays = {name: tensor.numpy() for name, tensor in net.state().items()}
        save_folder(tmp_path / f"t{seed}", Weights(net.config, arrays, {}))
        names.append(str(tmp_path / f"t{seed}"))
    clips, rows = open_clips([toy_data], tmp_path), np.arange(5, 25)
    one, two, both = (
        soft_answers(teachers, labels, clips, rows, 1.5, tmp_path)
        for teachers in (names[:1], names[1:], names)
    )
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-3)
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=2e-3)
    monkeypatch.setattr(distil, "_computed", lambda *a: pytest.fail("computed again"))
    again = soft_answers(names, labels, clips, rows, 1.5, tmp_path)
    np.testing.assert_array_equal(again, both)


def test_layerwise_distillation_needs_one_teacher_of_the_same_shape(
    toy_plan: Plan, tmp_path: Path
) -> None:
    wide = replace(toy_plan, shape=(32, 4, 64, 2), epochs=1)
    train(TrainingRequest(tmp_path / "teacher", wide, cache=tmp_path))
    plan = replace(toy_plan, teachers=(str(tmp_path / "teacher"),), epochs=1, layerwise=0.5)
    with pytest.raises(DeltakwtError, match="needs a teacher of the shape"):
        train(TrainingRequest(tmp_path / "student", plan, cache=tmp_path))
    with pytest.raises(DeltakwtError, match="exactly one"):
        train(TrainingRequest(tmp_path / "none", replace(plan, teachers=()), cache=tmp_path))


def test_a_copied_model_is_trained_with_a_low_rate_and_all_tokens() -> None:
    copied = plan_from_random(teachers=("arm",), layerwise=0.55)
    assert copied.token_group(copied.layerwise) == 1
    assert copied.rate <= plan_from_random().rate / 10
    assert copied.teacher_share == 0.9


def test_a_widened_model_is_trained_on_few_tokens_first() -> None:
    widened = plan_from_widened(teachers=("arm",))
    assert [widened.token_group(part) for part in (0.0, 0.85, 0.95)] == [3, 2, 1]
    assert not widened.delta


def test_the_learning_rate_starts_again_after_layerwise_distillation() -> None:
    plan = Plan(layerwise=0.2, layerwise_rate=3e-3, rate=1e-3)
    rates = [plan.learning_rate(step / 1000) for step in range(1000)]
    assert max(rates[:200]) == pytest.approx(3e-3, rel=1e-2)
    assert rates[199] < 1e-5
    assert max(rates[200:]) == pytest.approx(1e-3, rel=1e-2)


def test_speech_changes_shares_and_the_weight_of_negatives_grows() -> None:
    plan = with_negatives(plan_from_model(speech=("s",), sounds=("n",), delta="1_1_1_1_1_1"))
    assert plan.speech_share > plan.unknown_share > 0
    assert plan.recipe.cut_chance > 0
    assert plan.delta_from == 0.5
    weights = [plan.weight_of_negatives(part) for part in (0.0, 0.4, 0.8, 1.0)]
    assert weights == [1.0, pytest.approx(1.75), 2.5, 2.5]
    assert with_negatives(Plan()) == Plan()


def test_a_plan_survives_json_and_ignores_what_it_does_not_know() -> None:
    plan = with_negatives(plan_from_model(speech=("s",), shape=(32, 1, 64, 6)))
    document = plan.to_json() | {"lessons": 0.5}
    document["recipe"] = {**document["recipe"], "steady_chance": 0.5}
    assert Plan.from_json(document) == plan


@pytest.mark.parametrize("text", ["32,1,64", "a,b,c,d", "33,2,64,2", "0,1,64,2", "2048,1,64,2"])
def test_bad_shapes_are_refused(text: str) -> None:
    with pytest.raises(DeltakwtError, match=f"--shape {text}"):
        parse_shape(text)
