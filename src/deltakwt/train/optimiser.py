"""AdamW with clipped gradients, and the running average of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from deltakwt.train.checkpoint import State
from deltakwt.train.plan import Plan

BETAS, EPSILON = (0.9, 0.98), 1e-8


@torch.no_grad()
def update(
    plan: Plan,
    state: State,
    weights: Mapping[str, Tensor],
    gradients: dict[str, Tensor],
    steps: int,
) -> None:
    """One step of `steps`; `weights` and `state` change in place. Only matrices decay."""
    state.step += 1
    rate = plan.learning_rate(state.step / steps)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
    factor = min(1.0, plan.clip_norm / (norm + 1e-6))
    blend = 1 - min(plan.ema, (1 + state.step) / (10 + state.step))  # quick while it is young
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
