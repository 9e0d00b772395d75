"""The Python interface of the native fixed-point engine: the same methods as `engine.Engine`.

Its logits have the same bits on every processor, given the same 16-bit features. Features that are
given as floats are rounded to 16 bits first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.engine import Batch, Engine, Outcome, Run, RunnerOptions
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.fixed_weights import (
    PEAK_LIMITS,
    FixedLayer,
    FixedWeights,
    Scales,
    fixed_thresholds,
    quantize,
)
from deltakwt.core.native import (
    Floats,
    FrontEnd,
    as_array,
    as_floats,
    choose_isa,
    front_end_values,
    model_sizes,
    native_errors,
    whole,
)
from deltakwt.core.setting import DENSE, FrontEndSetting, Setting, Thresholds


@dataclass(frozen=True)
class FixedRun(Run):
    """The result of one clip with deltas."""

    peaks: NDArray[np.int32]  # (layers + 1, 11), in the order of PEAKS

    @property
    def saturated(self) -> int:
        """The number of tensors that reached `PEAK_LIMITS`; 0 in a correct run."""
        return int((self.peaks >= PEAK_LIMITS).sum())


@dataclass(frozen=True)
class FixedBatch(Batch):
    """The results of many clips; the counts are None for dense runs."""

    peaks: NDArray[np.int32]  # (n, layers + 1, 11)

    @property
    def saturated(self) -> NDArray[np.int64]:
        """The number of tensors that reached `PEAK_LIMITS`, per clip (n,)."""
        return np.asarray((self.peaks >= PEAK_LIMITS).sum(axis=(1, 2)))


IntegerResult = tuple[
    NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]
]  # logits, MACs, non-zeros, peaks


class FixedEngine(Engine):
    """One model in fixed point, ready to run. Many threads may use it at the same time."""

    arithmetic = "fixed"

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, Floats],
        scales: Scales,
        isa: str | None = None,
        name: str = "",
        weight_bits: int = 16,
    ) -> None:
        self.config = config
        self.name = name
        self.scales = scales
        self.isa = choose_isa(isa)
        self.frontend = FrontEnd(self.isa, config.stride)
        self.weights = quantize(config, tensors, scales, weight_bits)
        self._feature_scales = (2.0 ** np.array(scales.features)).astype(np.float32)
        self._step = 2.0**-self.weights.head_bits
        self._last_table: tuple[Thresholds | None, NDArray[np.int32] | None] = (None, None)
        with native_errors(name):
            self._fixed = _native.FixedModel(
                model_sizes(config),
                native_tensors(self.weights),
                self.weights.head_bias.astype(np.int32),
                native_numbers(self.weights),
                self.isa,
            )

    def dense(self, features: ArrayLike) -> Floats:
        """Return logits (labels,) of features (frames, 40), computed without deltas."""
        return self.logits(features, None)

    def delta(self, features: ArrayLike, thresholds: Thresholds) -> FixedRun:
        """Return logits, MACs, kept deltas and peaks of features (frames, 40)."""
        logits, macs, nonzeros, peaks = self.integers(self._clip(features), thresholds, 1, True)
        return FixedRun(self._floats(logits)[0], macs[0], nonzeros[0], peaks[0])

    def run(self, features: ArrayLike, thresholds: Thresholds | None) -> Outcome:
        """Return logits and counts of features (frames, 40); None runs the dense model."""
        if as_array(features, "features").dtype == np.int16:
            found = self.delta(features, thresholds or Thresholds())
            if thresholds is None:
                return Outcome(found.logits, None, None, found.saturated)
            return Outcome(found.logits, found.macs, found.nonzeros, found.saturated)
        checked, table = self._checked(features), self._table(thresholds)
        with native_errors(self.name):
            logits, macs, nonzeros, saturated = self._fixed.run(
                checked, self._feature_scales, table, self._step, table is not None
            )
        if table is None:
            return Outcome(logits, None, None, saturated)
        return Outcome(logits, macs, nonzeros, saturated)

    def classify(
        self, sound: Floats, front_end: FrontEndSetting, thresholds: Thresholds | None
    ) -> Outcome:
        """Return logits and counts of one second of sound (16000,), by one call of the core."""
        table = self._table(thresholds)
        with native_errors(self.name):
            logits, macs, nonzeros, saturated = self._fixed.classify(
                self.frontend._native,
                sound,
                *front_end_values(front_end),
                self._feature_scales,
                table,
                self._step,
                table is not None,
            )
        if table is None:
            return Outcome(logits, None, None, saturated)
        return Outcome(logits, macs, nonzeros, saturated)

    def runner(self, thresholds: Thresholds | None) -> Callable[[Floats], Floats]:
        """Return a function from features (frames, 40) to logits, with few checks."""
        table, native, scales = self._table(thresholds), self._fixed, self._feature_scales
        step = self._step
        return lambda features: native.run(features, scales, table, step, False)[0]

    def logits(self, features: ArrayLike, thresholds: Thresholds | None) -> Floats:
        """Return logits (labels,) of features (frames, 40), with deltas but without counts."""
        return self._floats(self.integers(self._clip(features), thresholds, 1)[0][0])

    def trace(self, features: ArrayLike, thresholds: Thresholds) -> NoReturn:
        """Refuse: traces show the float engine."""
        raise self._only_float("a trace")

    def times(
        self, features: ArrayLike, thresholds: Thresholds | None, repeats: int = 1
    ) -> NoReturn:
        """Refuse: the stages of the float engine are timed."""
        raise self._only_float("the time of each stage")

    def _only_float(self, what: str) -> DeltakwtError:
        return DeltakwtError(
            f"model {self.name}: {what} needs float arithmetic; load it with arithmetic='float'"
            " or give --arithmetic float"
        )

    def batch(self, clips: ArrayLike, setting: Setting = DENSE, threads: int = 0) -> FixedBatch:
        """Run many clips: audio (n, 16000), or features (n, frames, 40), on `threads` threads.

        0 threads means one per core. If the system refuses a thread, fewer are used. The front end
        of the setting applies to audio only.
        """
        array, count = as_array(clips, "batch"), whole(threads, "threads")
        if not isinstance(setting, Setting):
            raise DeltakwtError(f"setting {setting!r}: must be a Setting")
        shape = (self.config.frames, self.config.features)
        if array.ndim == 2 and array.shape[1] == CLIP_SAMPLES:
            array = self.frontend.batch(array, setting.front_end, count)
        if array.shape[1:] != shape:
            raise DeltakwtError(
                f"batch of shape {array.shape}: give audio (n, {CLIP_SAMPLES}) or features"
                f" (n, {shape[0]}, {shape[1]})"
            )
        is_dense = setting.thresholds is None
        logits, macs, nonzeros, peaks = self.integers(
            self.quantized(array), setting.thresholds, count, not is_dense
        )
        if is_dense:
            return FixedBatch(self._floats(logits), None, None, peaks)
        return FixedBatch(self._floats(logits), macs, nonzeros, peaks)

    def quantized(self, features: ArrayLike) -> NDArray[np.int16]:
        """Return features in 16 bits; those that are int16 already are returned as they are."""
        array = as_array(features, "features")
        if array.dtype == np.int16:
            return np.ascontiguousarray(array)
        floats = as_floats(array, "features")
        with native_errors(self.name):
            return self._fixed.features(floats, self._feature_scales).reshape(floats.shape)

    def integers(
        self,
        features: NDArray[np.int16],
        thresholds: Thresholds | None,
        threads: int = 0,
        counted: bool = False,
    ) -> IntegerResult:
        """Return integer logits, MACs, kept deltas and peaks of 16-bit features (n, frames, 40).

        A logit is an integer divided by 2^weights.head_bits. Without `counted` MACs and non-zeros
        are empty.
        """
        with native_errors(self.name):
            return self._fixed.batch(features, self._table(thresholds), threads, counted)

    def _table(self, thresholds: Thresholds | None) -> NDArray[np.int32] | None:
        if thresholds is None:
            return None
        if not isinstance(thresholds, Thresholds):
            raise DeltakwtError(f"thresholds {thresholds!r}: must be Thresholds or None")
        last, table = self._last_table  # one assignment below: threads see both or neither
        if last is not thresholds:
            table = fixed_thresholds(self.config, self.scales, thresholds)
            self._last_table = thresholds, table
        return table

    def _native_runner(
        self, thresholds: Thresholds | None, *options: *RunnerOptions
    ) -> _native.StreamRunner:
        return _native.FixedStreamRunner(
            self._fixed,
            self._table(thresholds),
            self._feature_scales,
            self._step,
            *options,
        )

    def _clip(self, features: ArrayLike) -> NDArray[np.int16]:
        array, shape = self.quantized(features), (self.config.frames, self.config.features)
        if array.shape != shape:
            raise DeltakwtError(f"features of shape {array.shape}: this model takes {shape}")
        return array[None]

    def _floats(self, logits: NDArray[np.int32]) -> Floats:
        return (logits * self._step).astype(np.float32)


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
