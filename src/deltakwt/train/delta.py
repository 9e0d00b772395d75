"""Thresholds in the loop: the forward pass computes on the references of delta encoding.

At every site the rows x(t) are replaced by the references x^(t) that delta encoding would have
kept, so the model learns to work with them. The gradient passes unchanged (straight-through).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt import _native
from deltakwt.core.config import Config
from deltakwt.core.macs import dense_macs, shortcut_macs
from deltakwt.core.setting import SITES, Thresholds
from deltakwt.train.net import Rewrite


def thresholds_in_the_loop(
    thresholds: Thresholds, layers: int, scale: float = 1.0, penalty: MacPenalty | None = None
) -> Rewrite:
    """Return a rewrite of every site's rows to their references, all thresholds times `scale`."""
    theta: NDArray[np.float32] = scale * thresholds.array(layers)

    def rewrite(site: str, layer: int, rows: Tensor) -> Tensor:
        value = float(theta[layer, SITES.index(site)])
        if value < 0:  # dense
            return rows
        references = reconstruct(rows.detach(), value)
        if penalty is not None:
            penalty.add(site, layer, rows, references, value)
        return rows + (references - rows).detach()

    return rewrite


class MacPenalty:
    """A differentiable count of the executed MACs, relative to the dense model's.

    A delta counts 0 below half its threshold, 1 above twice it, and linearly in between. So the
    gradient moves deltas near their threshold towards the reference they are taken from.
    """

    def __init__(self, config: Config) -> None:
        xw, qkt, sv, proj, mlp_in, mlp_out = shortcut_macs(config).T / dense_macs(config).sum()
        self.weights = {
            **{"x": xw, "q": qkt / 2, "k": qkt / 2, "softmax": sv},
            **{"heads": proj, "mlp_in": mlp_in, "mlp_hidden": mlp_out},
        }
        self.total = torch.zeros(())

    def add(self, site: str, layer: int, rows: Tensor, references: Tensor, theta: float) -> None:
        """Count the rows of a site (..., T, w), given their references."""
        if site not in self.weights or theta == 0 or rows.shape[-2] < 3:
            return  # the scores feed no product; the last layer has a single query
        delta = (rows[..., 2:, :] - references[..., 1:-1, :]).abs()
        ramp = ((delta - 0.5 * theta) / (1.5 * theta)).clamp(0, 1)
        self.total = self.total + float(self.weights[site][layer]) * ramp.mean()


def reconstruct(rows: Tensor, theta: float) -> Tensor:
    """Return the references of rows (..., T, w): 0 and 1 exact, others where |delta| > theta."""
    if rows.device.type != "cpu":
        return _reconstruct_in_torch(rows, theta)
    flat = rows.contiguous().view(-1, *rows.shape[-2:])
    out = torch.empty_like(flat)
    _native.reconstruct(flat.numpy(), out.numpy(), theta)
    return out.view(rows.shape)


def _reconstruct_in_torch(rows: Tensor, theta: float) -> Tensor:
    """Return the same, computed in torch, for tensors that are not in the memory of the CPU."""
    out = [rows[..., t, :] for t in range(min(2, rows.shape[-2]))]
    for t in range(2, rows.shape[-2]):
        now, before = rows[..., t, :], out[-1]
        out.append(torch.where((now - before).abs() > theta, now, before))
    return torch.stack(out, dim=-2)
