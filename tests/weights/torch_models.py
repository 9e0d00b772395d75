"""KWTs as other projects write them in torch, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltakwt

torch = pytest.importorskip("torch", reason="needs torch: pip install 'deltakwt[train]'")
nn: Any = torch.nn
DIM, HEADS, MLP, DEPTH = 32, 2, 48, 3


class Attention(nn.Module):
    """Attention as vit-pytorch and the codes after it name it."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        inner = heads * head_dim
        self.heads = heads
        self.to_qkv = nn.Linear(DIM, 3 * inner, bias=False)
        whole = heads == 1 and head_dim == DIM
        self.to_out = nn.Identity() if whole else nn.Sequential(nn.Linear(inner, DIM))

    def forward(self, x: Any) -> Any:
        parts = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


def mlp() -> Any:
    return nn.Sequential(
        nn.Linear(DIM, MLP), nn.GELU(approximate="tanh"), nn.Dropout(0.0), nn.Linear(MLP, DIM)
    )


class Lists(nn.Module):
    """A KWT whose blocks are spread over four lists, without a bias of the embedding."""

    def __init__(self, heads: int = HEADS, head_norm: bool = False) -> None:
        super().__init__()
        self.lin_proj = nn.Linear(40, DIM, bias=False)
        self.g_feature = nn.Parameter(torch.randn(1, 1, DIM))
        self.pos_embedding = nn.Parameter(torch.randn(1, 99, DIM))
        self.transformer = nn.Module()
        for name, make in {
            "norm1": lambda: nn.LayerNorm(DIM, eps=1e-6),
            "norm2": lambda: nn.LayerNorm(DIM, eps=1e-6),
            "attn": lambda: Attention(heads, DIM // heads),
            "ff": lambda: wrapped(mlp()),
        }.items():
            setattr(self.transformer, name, nn.ModuleList([make() for _ in range(DEPTH)]))
        linear = nn.Linear(DIM, 12)
        self.mlp_head = nn.Sequential(nn.LayerNorm(DIM), linear) if head_norm else linear

    def forward(self, features: Any) -> Any:
        x = self.lin_proj(features)
        x = torch.cat([self.g_feature.expand(len(x), 1, DIM), x], dim=1) + self.pos_embedding
        blocks = self.transformer
        for layer in range(DEPTH):
            x = blocks.norm1[layer](blocks.attn[layer](x) + x)
            x = blocks.norm2[layer](blocks.ff[layer].net(x) + x)
        return self.mlp_head(x[:, 0])


def wrapped(net: Any) -> Any:
    made = nn.Module()
    made.net = net
    return made


class Encoder(nn.Module):
    """A KWT on torch's own Transformer layers, which have a bias of queries, keys and values."""

    def __init__(self, label_count: int = 12) -> None:
        super().__init__()
        embedding = nn.Module()
        embedding.linear = nn.Linear(40, DIM)
        embedding.class_token = nn.Parameter(torch.randn(1, 1, DIM))
        embedding.pos_encoding = nn.Parameter(torch.randn(1, 99, DIM))
        self.input_embeddings = nn.ModuleList([embedding])
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, MLP, 0.0, nn.GELU(approximate="tanh"), 1e-6, batch_first=True
        )
        self.encoders = nn.ModuleList([nn.TransformerEncoder(layer, DEPTH)])
        self.linear = nn.Linear(DIM, label_count)

    def forward(self, features: Any) -> Any:
        embedding = self.input_embeddings[0]
        x = embedding.linear(features)
        token = embedding.class_token.expand(len(x), 1, DIM)
        x = torch.cat([token, x], dim=1) + embedding.pos_encoding
        return self.linear(self.encoders[0](x)[:, 0])


def randomised(net: Any) -> Any:
    """Biases and norms start as zeros and ones: random ones show what is lost."""
    torch.manual_seed(1)
    for name, parameter in net.named_parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn_like(parameter)
        if "in_proj_bias" in name:
            parameter.data[:DIM] = 0  # of the queries
    return net.eval()


def features() -> Any:
    return 3 * torch.randn(4, 98, 40, generator=torch.Generator().manual_seed(2))


def assert_same_logits(net: Any, folder: Path, tolerance: float = 2e-4) -> None:
    model = deltakwt.load(folder)
    with torch.no_grad():
        theirs = net(features()).numpy()
    ours = np.array([model.engine.dense(row) for row in features().numpy()])
    assert np.abs(theirs).max() > 0.5
    np.testing.assert_allclose(ours, theirs, atol=tolerance)
