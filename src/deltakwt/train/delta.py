"""Thresholds in the loop: the forward computes on reconstructed references, the gradient passes.

At every site the rows x(t) are replaced by the references x^(t) that delta encoding would have
sent, so the model learns to live with what the thresholds drop.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deltakwt import _native
from deltakwt.thresholds import DENSE, SITES, Thresholds
from deltakwt.train.net import Rewrite


def thresholds_in_the_loop(thresholds: Thresholds, layers: int, scale: float = 1.0) -> Rewrite:
    """A rewrite of every site's rows by their references, all thresholds times `scale`."""
    theta: NDArray[np.float32] = thresholds.array(layers)

    def rewrite(site: str, layer: int, rows: Tensor) -> Tensor:
        value = float(theta[layer, SITES.index(site)])
        if value == DENSE:
            return rows
        return rows + (reconstruct(rows.detach(), scale * value) - rows).detach()

    return rewrite


def reconstruct(rows: Tensor, theta: float) -> Tensor:
    """(..., T, w) -> references: rows 0 and 1 exact, then changed only where |delta| > theta."""
    if rows.device.type != "cpu":
        return _reconstruct_anywhere(rows, theta)
    flat = rows.contiguous().view(-1, *rows.shape[-2:])
    out = torch.empty_like(flat)
    _native.reconstruct(flat.numpy(), out.numpy(), theta)
    return out.view(rows.shape)


def _reconstruct_anywhere(rows: Tensor, theta: float) -> Tensor:
    """In torch: 97 short steps, where the native scan cannot reach."""
    out = [rows[..., t, :] for t in range(min(2, rows.shape[-2]))]
    for t in range(2, rows.shape[-2]):
        now, before = rows[..., t, :], out[-1]
        out.append(torch.where((now - before).abs() > theta, now, before))
    return torch.stack(out, dim=-2)
