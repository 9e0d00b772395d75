"""One process, or several started by torchrun that share each batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class World:
    """The processes of a run, started by torchrun. With one process every sum is the value."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("gloo")

    @property
    def first(self) -> bool:
        """Return whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def sum_gradients(
        self, parameters: Mapping[str, Tensor], extra: Sequence[float]
    ) -> tuple[dict[str, Tensor], list[float]]:
        """Return the gradients and a few numbers, summed over all processes in one message."""
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
            for p in parameters.values()
        ]
        flat = torch.cat([*parts, torch.tensor(extra, device=parts[0].device)])
        flat = self.sum(flat.cpu()).to(flat.device) if self.size > 1 else flat
        sizes = [p.numel() for p in parameters.values()]
        *split, numbers = torch.split(flat, [*sizes, len(extra)])
        for parameter in parameters.values():
            parameter.grad = None
        named = zip(parameters.items(), split, strict=True)
        return {name: part.view_as(p) for (name, p), part in named}, numbers.tolist()
