"""The Python interface of the native fixed-point engine: the same methods as `engine.Engine`.

Its logits have the same bits on every processor, given the same 16-bit features. Features that are
given as floats are rounded to 16 bits first; the front end that made them is the float one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import Batch, Run
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed import PEAK_LIMITS, FixedLayer, FixedWeights
from deltakwt.core.fixed_scales import Scales, fixed_features, fixed_thresholds, quantize
from deltakwt.core.native import Floats, FrontEnd, choose_isa, model_sizes, native_errors
from deltakwt.core.setting import DENSE, PLAIN, FrontEndSetting, Setting, Thresholds


@dataclass(frozen=True)
class FixedRun(Run):
    """The result of one clip with deltas."""

    peaks: NDArray[np.int32]  # (layers + 1, 11), in the order of fixed.PEAKS

    @property
    def saturated(self) -> int:
        """The number of tensors that reached `fixed.PEAK_LIMITS`; 0 in a correct run."""
        return int((self.peaks >= PEAK_LIMITS).sum())


@dataclass(frozen=True)
class FixedBatch(Batch):
    """The results of many clips; the counts are None for dense runs."""

    peaks: NDArray[np.int32]  # (n, layers + 1, 11)

    @property
    def saturated(self) -> NDArray[np.int64]:
        """The number of tensors that reached `fixed.PEAK_LIMITS`, per clip (n,)."""
        return np.asarray((self.peaks >= PEAK_LIMITS).sum(axis=(1, 2)))


Result = tuple[
    NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]
]  # logits, MACs, non-zeros, peaks


class FixedEngine:
    """One model in fixed point, ready to run. Many threads may use it at the same time."""

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, Floats],
        scales: Scales,
        isa: str | None = None,
        weight_bits: int = 16,
    ) -> None:
        self.config = config
        self.scales = scales
        self.isa = choose_isa(isa)
        self.frontend = FrontEnd(self.isa)
        self.weights = quantize(config, tensors, scales, weight_bits)
        with native_errors():
            self._native = _native.FixedModel(
                model_sizes(config),
                native_tensors(self.weights),
                self.weights.head_bias.astype(np.int32),
                native_numbers(self.weights),
                self.isa,
            )

    @property
    def memory_bytes(self) -> int:
        """The memory of the weights and of the scratch block of one thread, in bytes."""
        return self._native.memory()

    def features(self, audio: ArrayLike, front_end: FrontEndSetting = PLAIN) -> Floats:
        """Return features (frames, 40) of (n,) samples in [-1, 1] at 16 kHz."""
        return self.frontend.features(audio, front_end)

    def dense(self, features: ArrayLike) -> Floats:
        """Return logits (labels,) of features (frames, 40), computed without deltas."""
        return self.logits(features, None)

    def delta(self, features: ArrayLike, thresholds: Thresholds) -> FixedRun:
        """Return logits, MACs, kept deltas and peaks of features (frames, 40)."""
        logits, macs, nonzeros, peaks = self.integers(self._clip(features), thresholds, 1, True)
        return FixedRun(self._floats(logits)[0], macs[0], nonzeros[0], peaks[0])

    def logits(self, features: ArrayLike, thresholds: Thresholds | None) -> Floats:
        """Return logits (labels,) of features (frames, 40), with deltas but without counts."""
        logits = self.integers(self._clip(features), thresholds, 1)[0][0]
        return self._floats(logits)

    def batch(self, clips: ArrayLike, setting: Setting = DENSE, threads: int = 0) -> FixedBatch:
        """Run many clips: audio (n, 16000), or features (n, 98, 40), on `threads` threads.

        0 threads means one per core. The front end of the setting applies to audio only.
        """
        array, shape = np.asarray(clips), (self.config.frames, self.config.features)
        if array.ndim == 2 and array.shape[1] == CLIP_SAMPLES:
            rows = [self.features(clip, setting.front_end) for clip in array]
            array = np.array(rows, np.float32).reshape(len(rows), *shape)
        if array.shape[1:] != shape:
            raise DeltakwtError(
                f"batch of shape {array.shape}: give audio (n, {CLIP_SAMPLES}) or features"
                f" (n, {shape[0]}, {shape[1]})"
            )
        is_dense = setting.thresholds is None
        logits, macs, nonzeros, peaks = self.integers(
            self.quantized(array), setting.thresholds, threads, not is_dense
        )
        if is_dense:
            return FixedBatch(self._floats(logits), None, None, peaks)
        return FixedBatch(self._floats(logits), macs, nonzeros, peaks)

    def quantized(self, features: ArrayLike) -> NDArray[np.int16]:
        """Return features in 16 bits; those that are int16 already are returned as they are."""
        array = np.ascontiguousarray(features)
        if array.dtype == np.int16:
            return array
        if not np.isfinite(array).all():
            raise DeltakwtError("features: a number is NaN or infinite")
        return fixed_features(self.scales, array)

    def integers(
        self,
        features: NDArray[np.int16],
        thresholds: Thresholds | None,
        threads: int = 0,
        counted: bool = False,
    ) -> Result:
        """Return integer logits, MACs, kept deltas and peaks of 16-bit features (n, frames, 40).

        A logit is an integer divided by 2^weights.head_bits. Without `counted` MACs and non-zeros
        are empty.
        """
        table = None
        if thresholds is not None:
            table = fixed_thresholds(self.config, self.scales, thresholds)
        with native_errors():
            return self._native.batch(features, table, threads, counted)

    def _clip(self, features: ArrayLike) -> NDArray[np.int16]:
        array, shape = self.quantized(features), (self.config.frames, self.config.features)
        if array.shape != shape:
            raise DeltakwtError(f"features of shape {array.shape}: this model takes {shape}")
        return array[None]

    def _floats(self, logits: NDArray[np.int32]) -> Floats:
        return (logits / 2.0**self.weights.head_bits).astype(np.float32)


def _layer_tensors(layer: FixedLayer) -> list[NDArray[np.int32]]:
    return [
        *(layer.q, layer.k, layer.v, layer.proj, layer.proj_bias),
        *(layer.mlp_in, layer.mlp_in_bias, layer.mlp_out, layer.mlp_out_bias),
        *(layer.norm1.gain, layer.norm1.bias, layer.norm2.gain, layer.norm2.bias),
    ]


def native_tensors(weights: FixedWeights) -> list[NDArray[np.int16]]:
    """Return the tensors in the order of native/binding_fixed.cpp."""
    tensors = [weights.embed, weights.positions, weights.head]
    for layer in weights.layers:
        tensors += _layer_tensors(layer)
    return [np.ascontiguousarray(tensor, np.int16) for tensor in tensors]


def native_numbers(weights: FixedWeights) -> NDArray[np.int32]:
    """Return the epsilons, shifts and bits in the order of native/binding_fixed.cpp."""
    numbers = [weights.embed_shift]
    for layer in weights.layers:
        numbers += [layer.norm1.epsilon, layer.norm2.epsilon, layer.norm1.shift, layer.norm2.shift]
        numbers += [layer.key_shift, layer.score_bits, layer.hidden_bits]
        numbers += [layer.sum1_shift, layer.sum2_shift]
    return np.array(numbers, np.int32)
