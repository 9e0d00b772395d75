"""One process, or several started by torchrun that share each batch."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from deltakwt.train.net import Kwt


class World:
    """The processes of a run. With one process every sum is the value itself."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("gloo")

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def sum_gradients(
        self, net: Kwt, extra: Sequence[float]
    ) -> tuple[dict[str, Tensor], list[float]]:
        """Gradients and a few numbers summed over all processes, in one message."""
        parts = [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
            for p in net.tensors.values()
        ]
        flat = torch.cat([*parts, torch.tensor(extra, device=parts[0].device)])
        flat = self.sum(flat.cpu()).to(flat.device) if self.size > 1 else flat
        sizes = [p.numel() for p in net.tensors.values()]
        *split, numbers = torch.split(flat, [*sizes, len(extra)])
        for parameter in net.tensors.values():
            parameter.grad = None
        named = zip(net.tensors.items(), split, strict=True)
        return {name: part.view_as(p) for (name, p), part in named}, numbers.tolist()
