"""The state of a run and its checkpoint file; one step of AdamW.

A checkpoint holds weights, their average, the optimiser's moments, the hard negatives and the
position in the plan. It is written beside the old one and then renamed. Random numbers need no
place in it: each is drawn from the seed and the number of the step.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from deltakwt.core.errors import DeltakwtError, DiskFailed
from deltakwt.train.negatives import HardNegatives
from deltakwt.train.plan import Plan

NAME = "checkpoint.safetensors"
BETAS, EPSILON = (0.9, 0.98), 1e-8


@dataclass
class State:
    """Everything that changes during a run."""

    weights: dict[str, Tensor]
    average: dict[str, Tensor]  # exponential moving average of the weights
    first: dict[str, Tensor]  # AdamW's moments
    second: dict[str, Tensor]
    best: dict[str, Tensor]  # averaged weights of the best epoch by validation
    hard: HardNegatives = field(default_factory=HardNegatives)
    step: int = 0
    best_score: float = -1.0
    seconds: float = 0.0  # training time
    history: list[dict[str, float]] = field(default_factory=list)  # one row per epoch

    @classmethod
    def fresh(cls, weights: dict[str, Tensor]) -> State:
        """Return the state before the first step."""

        def copy() -> dict[str, Tensor]:
            return {name: tensor.detach().clone() for name, tensor in weights.items()}

        def zero() -> dict[str, Tensor]:
            return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}

        return cls(copy(), copy(), zero(), zero(), copy())

    def to(self, device: torch.device) -> None:
        """Move all tensors to a device."""
        for group in GROUPS:
            moved = {name: tensor.to(device) for name, tensor in getattr(self, group).items()}
            setattr(self, group, moved)


FACTS = ("step", "best_score", "seconds", "history")
GROUPS = ("weights", "average", "first", "second", "best")
HARD = "hard"


@torch.no_grad()
def adamw_step(
    plan: Plan,
    state: State,
    weights: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    steps: int,
) -> None:
    """Update `weights` and `state` in place. Gradients are clipped; only matrices decay."""
    state.step += 1
    rate = plan.learning_rate(state.step / steps)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    factor = min(1.0, plan.clip_norm / (norm + 1e-6))
    blend = 1 - min(plan.ema, (1 + state.step) / (10 + state.step))  # a shorter average at first
    for name, weight in weights.items():
        gradient = gradients[name] * factor
        first, second = state.first[name], state.second[name]
        first.lerp_(gradient, 1 - BETAS[0])
        second.lerp_(gradient.square(), 1 - BETAS[1])
        if name.endswith(".weight") and "norm" not in name:
            weight.mul_(1 - rate * plan.weight_decay)
        root = (second / (1 - BETAS[1] ** state.step)).sqrt_().add_(EPSILON)
        weight.addcdiv_(first, root, value=-rate / (1 - BETAS[0] ** state.step))
        state.average[name].lerp_(weight, blend)


def save(folder: Path, plan: Plan, state: State) -> None:
    """Write the checkpoint; the previous one stays until this one is complete."""
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous().cpu()
        for group in GROUPS
        for name, tensor in getattr(state, group).items()
    }
    tensors |= {f"{HARD}/{name}": tensor for name, tensor in state.hard.tensors().items()}
    facts = {"plan": plan.to_json(), **{name: getattr(state, name) for name in FACTS}}
    part = folder / (NAME + ".part")
    try:
        save_file(tensors, part, {"facts": json.dumps(facts)})
        os.replace(part, folder / NAME)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise DiskFailed(
            f"{folder}: cannot write the checkpoint ({error}); the previous one is kept:"
            " free some space and continue with --resume"
        ) from error


def load(folder: Path) -> tuple[Plan, State]:
    """Return the plan and the state of the run in `folder`."""
    path = folder / NAME
    if not path.is_file():
        raise DeltakwtError(f"{path}: no checkpoint to resume; start without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            groups: dict[str, dict[str, Tensor]] = {group: {} for group in (*GROUPS, HARD)}
            for key in file.keys():  # noqa: SIM118 (a safetensors file is not a dict)
                group, name = key.split("/", 1)
                groups[group][name] = file.get_tensor(key)
        plan = Plan.from_json(facts["plan"])
        weights, average, first, second, best = (groups[group] for group in GROUPS)
        hard = HardNegatives.from_tensors(groups[HARD])
        state = State(weights, average, first, second, best, hard)
        for name in FACTS:
            setattr(state, name, facts[name])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DeltakwtError(f"{path}: damaged checkpoint: {error}") from error
    return plan, state
