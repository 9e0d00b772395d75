"""Lessons: a teacher of the same shape shows every half of every block what it makes of a token.

Learning twelve blocks at once from an answer at the end is slow. Here each half block sees the
teacher's own tokens and learns to give the teacher's next ones: twenty-four small regressions
side by side, none waiting for another. What comes out nearly knows what the teacher knows, and
goes on learning from labels, noise and thresholds as a whole.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deltakwt.train.net import Kwt


def lesson(net: Kwt, teacher: Kwt, features: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Mean error of the half blocks, each as a part of its target's variance; and of the head."""
    with torch.no_grad():
        before = teacher.embed(features, chosen)  # (B, T, d)
    errors = [_error(net.embed(features, chosen), before)]
    for layer in range(net.config.layers):
        with torch.no_grad():
            between = teacher.attend(before, layer)
            after = teacher.think(between, layer)
        errors.append(_error(net.attend(before, layer), between))
        errors.append(_error(net.think(between, layer), after))
        before = after
    with torch.no_grad():
        soft = teacher.answer(before).softmax(1)
    return torch.stack(errors).mean() + F.cross_entropy(net.answer(before), soft)


def _error(made: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(made, target) / target.var()
