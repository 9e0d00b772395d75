"""The Keyword Transformer in torch, with the canonical names of `Config.shapes()`.

Parameters live in one flat dictionary, so that a state here is a model folder's tensors. The
forward follows the paper: post-norm blocks, and a last layer that computes the class token only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from deltakwt.core.config import LAYER_NORM_EPS, Config

# Called at every delta site with (site, layer, rows); returns the rows to compute on.
Rewrite = Callable[[str, int, Tensor], Tensor]


def keep(site: str, layer: int, rows: Tensor) -> Tensor:
    """Return the rows unchanged: the dense model."""
    return rows


class Kwt(nn.Module):
    """x = LN(x + MHSA(x)); x = LN(x + MLP(x)) in every layer, then a linear head."""

    def __init__(self, config: Config, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        # torch does not allow a dot in a parameter's name, so the canonical names are kept here.
        self.tensors = {
            name: nn.Parameter(_initial(name, shape, generator))
            for name, shape in config.shapes().items()
        }
        for name, parameter in self.tensors.items():
            self.register_parameter(name.replace(".", "/"), parameter)

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the weights under their canonical names."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the weights to those of a model folder. Other names in `tensors` are ignored."""
        with torch.no_grad():
            for name, parameter in self.tensors.items():
                parameter.copy_(tensors[name])

    def forward(
        self, features: Tensor, chosen: Tensor | None = None, rewrite: Rewrite = keep
    ) -> Tensor:
        """Return logits (B, labels) of features (B, frames, 40).

        `chosen` (n,) are the frames to use, each with its own position. Training on a part of the
        frames is faster and regularises; attention works with any number of tokens.
        """
        return self.logits(self.layers(features, chosen, rewrite)[-1])

    def layers(
        self, features: Tensor, chosen: Tensor | None = None, rewrite: Rewrite = keep
    ) -> list[Tensor]:
        """Return the tokens (B, T, d) after the embedding and after every layer.

        The last layer gives the class token only.
        """
        x = [self.embed(features, chosen)]
        for layer in range(self.config.layers):
            attended = self.attention_block(x[-1], layer, rewrite)
            x.append(self.mlp_block(attended, layer, rewrite))
        return x

    def embed(self, features: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Return the tokens (B, T, d): class token and frames, with their positions added."""
        w = self.tensors
        positions = w["positions"]
        sound = positions[1:]
        if chosen is not None:
            features, sound = features[:, chosen], sound[chosen]
        x = F.linear(features, w["embed.weight"].T, w["embed.bias"]) + sound  # (B, T-1, d)
        first = (w["class_token"] + positions[0]).expand(len(x), 1, -1)
        return torch.cat([first, x], dim=1)

    def attention_block(self, x: Tensor, layer: int, rewrite: Rewrite = keep) -> Tensor:
        """Return LN(x + MHSA(x)); in the last layer, of the class token only."""
        w = self._block(layer)
        attended, x = self.attention(x, layer, rewrite)
        return _norm(x + attended, w["norm1.weight"], w["norm1.bias"])

    def mlp_block(self, x: Tensor, layer: int, rewrite: Rewrite = keep) -> Tensor:
        """Return LN(x + MLP(x))."""
        w = self._block(layer)
        return _norm(x + self.mlp(x, layer, rewrite), w["norm2.weight"], w["norm2.bias"])

    def mlp(self, x: Tensor, layer: int, rewrite: Rewrite = keep) -> Tensor:
        """Return what the MLP adds to x."""
        w = self._block(layer)
        hidden = F.linear(rewrite("mlp_in", layer, x), w["mlp_in.weight"].T, w["mlp_in.bias"])
        hidden = rewrite("mlp_hidden", layer, gelu(hidden))
        return F.linear(hidden, w["mlp_out.weight"].T, w["mlp_out.bias"])

    def logits(self, x: Tensor) -> Tensor:
        """Return logits (B, labels): the head applied to the class token."""
        return F.linear(x[:, 0], self.tensors["head.weight"].T, self.tensors["head.bias"])

    def _block(self, layer: int) -> dict[str, Tensor]:
        return {name: self.tensors[f"blocks.{layer}.{name}"] for name in BLOCK}

    def attention(self, x: Tensor, layer: int, rewrite: Rewrite = keep) -> tuple[Tensor, Tensor]:
        """Return the projected attention and the rows it is added to."""
        w = self._block(layer)
        batch, tokens, dim = x.shape
        heads = self.config.heads
        seen = rewrite("x", layer, x)
        last = layer == self.config.layers - 1
        x, asking = (x[:, :1], seen[:, :1]) if last else (x, seen)
        q = rewrite("q", layer, F.linear(asking, w["q.weight"].T))
        k = rewrite("k", layer, F.linear(seen, w["k.weight"].T))
        v = F.linear(seen, w["v.weight"].T)
        q, k, v = (t.view(batch, -1, heads, dim // heads).transpose(1, 2) for t in (q, k, v))
        if rewrite is keep:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.transpose(-1, -2)) / math.sqrt(dim // heads)  # (B, h, T, T)
            weights = rewrite("scores", layer, scores).softmax(-1)
            mixed = rewrite("softmax", layer, weights) @ v
        mixed = rewrite("heads", layer, mixed.transpose(1, 2).reshape(batch, -1, dim))
        return F.linear(mixed, w["proj.weight"].T, w["proj.bias"]), x


BLOCK = (
    *("q.weight", "k.weight", "v.weight", "proj.weight", "proj.bias", "norm1.weight"),
    *("norm1.bias", "mlp_in.weight", "mlp_in.bias", "mlp_out.weight", "mlp_out.bias"),
    *("norm2.weight", "norm2.bias"),
)


class _Gelu(torch.autograd.Function):
    """GELU in its tanh form, as x sigmoid(2u). Keeping the sigmoid halves the backward pass."""

    TWO_ROOT = 2 * math.sqrt(2 / math.pi)
    CUBE = 0.044715

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        u = (x * x).mul_(_Gelu.CUBE * _Gelu.TWO_ROOT).add_(_Gelu.TWO_ROOT).mul_(x)
        gate = u.sigmoid_()
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, gate = ctx.saved_tensors
        slope = (x * x).mul_(3 * _Gelu.CUBE * _Gelu.TWO_ROOT).add_(_Gelu.TWO_ROOT).mul_(x)
        slope.mul_(torch.addcmul(gate, gate, gate, value=-1))  # x u' gate (1 - gate)
        slope.add_(gate).mul_(gradients[0])
        return cast(Tensor, slope)


def gelu(x: Tensor) -> Tensor:
    """Return GELU(x) in its tanh form."""
    if not torch.is_grad_enabled():
        return F.gelu(x, approximate="tanh")
    return cast(Tensor, _Gelu.apply(x))  # type: ignore[no-untyped-call]


def _norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, LAYER_NORM_EPS)


def _initial(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return initial values: truncated normal for matrices, ones for norms, zeros for biases."""
    if name.endswith("bias"):
        return torch.zeros(shape)
    if "norm" in name:
        return torch.ones(shape)
    deviation = 0.02 if name in ("class_token", "positions") else math.sqrt(1 / shape[0])
    return torch.nn.init.trunc_normal_(
        torch.empty(shape), std=deviation, a=-2 * deviation, b=2 * deviation, generator=generator
    )


def inference_call(
    config: Config, tensors: Mapping[str, NDArray[np.float32]], is_compiled: bool = False
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return a function from features (frames, 40) to logits on one thread, for the benchmark."""
    torch.set_num_threads(1)
    net: Any = Kwt(config)
    net.load({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    net.eval()
    if is_compiled:
        net = torch.compile(net)

    def run(features: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(net(torch.from_numpy(features[None]))[0])

    return run
