"""A run at rest: weights, their average, the optimiser and the place in the plan, in one file.

Written beside the old one and then put in its place, so a stop at any moment loses nothing.
Random numbers need no place here: each comes from the seed and the step it is used in.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from deltakwt.core.errors import DeltakwtError
from deltakwt.train.plan import Plan

NAME = "checkpoint.safetensors"


@dataclass
class State:
    """What changes while training."""

    weights: dict[str, Tensor]
    average: dict[str, Tensor]  # exponential moving average of the weights
    first: dict[str, Tensor]  # AdamW's moments
    second: dict[str, Tensor]
    best: dict[str, Tensor]  # averaged weights of the best epoch by validation
    step: int = 0
    best_accuracy: float = 0.0
    seconds: float = 0.0  # spent training
    history: list[dict[str, float]] = field(default_factory=list)  # one row an epoch

    @classmethod
    def fresh(cls, weights: dict[str, Tensor]) -> State:
        def copy() -> dict[str, Tensor]:
            return {name: tensor.detach().clone() for name, tensor in weights.items()}

        def zero() -> dict[str, Tensor]:
            return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}

        return cls(copy(), copy(), zero(), zero(), copy())

    def to(self, device: torch.device) -> None:
        for group in GROUPS:
            moved = {name: tensor.to(device) for name, tensor in getattr(self, group).items()}
            setattr(self, group, moved)


FACTS = ("step", "best_accuracy", "seconds", "history")
GROUPS = ("weights", "average", "first", "second", "best")


def save(folder: Path, plan: Plan, state: State) -> None:
    """Write the checkpoint of a run; the one before it stays until this one is whole."""
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous().cpu()
        for group in GROUPS
        for name, tensor in getattr(state, group).items()
    }
    facts = {
        "plan": plan.to_json(),
        **{name: getattr(state, name) for name in FACTS},
    }
    part = folder / (NAME + ".part")
    try:
        save_file(tensors, part, {"facts": json.dumps(facts)})
        os.replace(part, folder / NAME)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        raise DeltakwtError(
            f"{folder}: cannot write the checkpoint ({error}); the one before it is kept,"
            " make room and go on with --resume"
        ) from error


def load(folder: Path) -> tuple[Plan, State]:
    """The run kept in `folder`."""
    path = folder / NAME
    if not path.is_file():
        raise DeltakwtError(f"{path}: no checkpoint to resume; start without --resume")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()["facts"])
            groups: dict[str, dict[str, Tensor]] = {group: {} for group in GROUPS}
            for key in file.keys():  # noqa: SIM118 (a safetensors file is not a dict)
                group, name = key.split("/", 1)
                groups[group][name] = file.get_tensor(key)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DeltakwtError(f"{path}: damaged checkpoint: {error}") from error
    plan = Plan.from_json(facts["plan"])
    weights, average, first, second, best = (groups[group] for group in GROUPS)
    state = State(weights, average, first, second, best)
    for name in FACTS:
        setattr(state, name, facts[name])
    return plan, state
