"""Thresholds in the loop: the forward computes on reconstructed references, the gradient passes.

At every site the rows x(t) are replaced by the references x^(t) that delta encoding would have
sent, so the model learns to live with what the thresholds drop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deltakwt.train.net import Rewrite

SITES = ("x", "q", "k", "scores", "softmax", "heads", "mlp_in", "mlp_hidden")


def reconstruct(rows: Tensor, theta: float) -> Tensor:
    """(..., T, w) rows -> their references: rows 0 and 1 exact, then kept where |delta| > theta."""
    with torch.no_grad():
        turned = rows.detach().movedim(-2, 0).contiguous()  # (T, ..., w)
        out = turned.clone()
        for t in range(2, len(turned)):
            held = (turned[t] - out[t - 1]).abs() <= theta
            torch.where(held, out[t - 1], turned[t], out=out[t])
        return out.movedim(0, -2)


def thresholds_in_the_loop(theta: Tensor, scale: float) -> Rewrite:
    """A rewrite of every site by `theta` (layers, sites) times `scale`; below zero is dense."""

    def rewrite(site: str, layer: int, rows: Tensor) -> Tensor:
        value = float(theta[layer, SITES.index(site)])
        if value < 0 or rows.shape[-2] < 3:
            return rows
        return rows + (reconstruct(rows, value * scale) - rows).detach()

    return rewrite
