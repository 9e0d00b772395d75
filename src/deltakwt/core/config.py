"""Shapes and labels of the Keyword Transformers, and the constants of their front end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

SAMPLE_RATE = 16_000
CLIP_SAMPLES = 16_000  # one second
FRAME_SAMPLES = 480  # 30 ms
HOP_SAMPLES = 160  # 10 ms: from one frame to the next, with a stride of 1
MAX_STRIDE = FRAME_SAMPLES // HOP_SAMPLES  # with more, samples between two frames are lost
FFT_SAMPLES = 512
MEL_BANDS = 80
MEL_LOW_HZ, MEL_HIGH_HZ = 20.0, 7600.0
ENERGY_FLOOR = 1e-12  # smallest energy before the logarithm
FEATURES = 40  # DCT coefficients kept
FRAMES = 1 + (CLIP_SAMPLES - FRAME_SAMPLES) // HOP_SAMPLES  # 98, with a stride of 1

SILENCE, UNKNOWN = "_silence_", "_unknown_"
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
LABELS = (SILENCE, UNKNOWN, *KEYWORDS)

LAYER_NORM_EPS = 1e-6

Tensor = TypeVar("Tensor")


@dataclass(frozen=True)
class Config:
    """The shape of one Keyword Transformer."""

    dim: int  # d, the width of a token
    heads: int  # k
    mlp: int  # width of the MLP's hidden layer
    layers: int = 12  # L
    labels: tuple[str, ...] = LABELS
    frames: int = FRAMES  # tokens that come from sound
    features: int = FEATURES  # coefficients of a frame
    stride: int = 1  # steps of 10 ms from one frame to the next

    @property
    def tokens(self) -> int:
        """T: the class token and one token per frame."""
        return self.frames + 1

    @property
    def hop_samples(self) -> int:
        """Samples from one frame to the next."""
        return self.stride * HOP_SAMPLES

    def delay(self, smooth: bool) -> int:
        """Return the samples after one second of sound that its last row of features needs.

        Smoothing over time needs the frame after the last one.
        """
        last = frames_of(self.stride) - 1 + smooth
        return max(0, last * self.hop_samples + FRAME_SAMPLES - CLIP_SAMPLES)

    @property
    def head_dim(self) -> int:
        """d_h = d / k."""
        return self.dim // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every weight. Matrices are (in, out), as in X W."""
        d, m = self.dim, self.mlp
        shapes: dict[str, tuple[int, ...]] = {
            "embed.weight": (self.features, d),
            "embed.bias": (d,),
            "class_token": (d,),
            "positions": (self.tokens, d),
        }
        for layer in range(self.layers):
            block = {
                "q.weight": (d, d),
                "k.weight": (d, d),
                "v.weight": (d, d),
                "proj.weight": (d, d),
                "proj.bias": (d,),
                "norm1.weight": (d,),
                "norm1.bias": (d,),
                "mlp_in.weight": (d, m),
                "mlp_in.bias": (m,),
                "mlp_out.weight": (m, d),
                "mlp_out.bias": (d,),
                "norm2.weight": (d,),
                "norm2.bias": (d,),
            }
            shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
        shapes["head.weight"] = (d, len(self.labels))
        shapes["head.bias"] = (len(self.labels),)
        return shapes


def frames_of(stride: int, samples: int = CLIP_SAMPLES) -> int:
    """Return the number of frames in a sound: of one second 98, or 49 with a stride of 2."""
    return 1 + (samples - FRAME_SAMPLES) // (stride * HOP_SAMPLES)


def block_weights(weights: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    """Return the weights of one layer, by their names without the prefix."""
    prefix = f"blocks.{layer}."
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


STRIDES = {frames_of(stride): stride for stride in range(1, MAX_STRIDE + 1)}  # by frames

# KWT-0 is ours, for small processors: a token every 20 ms, 54,028 parameters, 3.4 M MACs dense
# (KWT-1: 607,308 parameters, 73 M).
KWT0 = Config(dim=32, heads=1, mlp=64, layers=6, frames=frames_of(2), stride=2)
KWT1 = Config(dim=64, heads=1, mlp=256)
KWT2 = Config(dim=128, heads=2, mlp=512)
KWT3 = Config(dim=192, heads=3, mlp=768)
SIZES = {"kwt-0": KWT0, "kwt-1": KWT1, "kwt-2": KWT2, "kwt-3": KWT3}
