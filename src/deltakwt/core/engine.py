"""The Python face of the native core: features, dense and delta runs, traces, batches, streams."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.core.config import CLIP_SAMPLES, FRAME_SAMPLES, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import PRODUCTS
from deltakwt.core.setting import (
    ALL_SITES,
    DENSE,
    PLAIN,
    FrontEndSetting,
    Setting,
    Thresholds,
)

Floats = NDArray[np.float32]

# What Engine.times tells apart: the products, the scan of each site, and the rest of a layer.
STAGES = (
    *PRODUCTS,
    *(f"scan_{site}" for site in ALL_SITES),
    "softmax",
    "gelu",
    "norm",
    "layout",
)


@dataclass(frozen=True)
class Run:
    """One clip through the model with deltas."""

    logits: Floats  # (labels,)
    macs: NDArray[np.int64]  # (layers, 6), in the order of macs.PRODUCTS
    nonzeros: NDArray[np.int64]  # (layers, 9), in the order of thresholds.ALL_SITES


@dataclass(frozen=True)
class Batch:
    """Many clips; the counts are None for dense runs."""

    logits: Floats  # (n, labels)
    macs: NDArray[np.int64] | None  # (n, layers, 6)
    nonzeros: NDArray[np.int64] | None  # (n, layers, 9)


def available_isas() -> tuple[str, ...]:
    """The instruction sets that this build has and this processor runs, "scalar" first."""
    return tuple(_native.isas())


def choose_isa(isa: str | None = None) -> str:
    """The kernels to use: as asked for, or by DELTAKWT_ISA, or the best there are."""
    name = isa or os.environ.get("DELTAKWT_ISA") or _native.best_isa()
    if name not in available_isas():
        source = "isa" if isa else "DELTAKWT_ISA"
        raise DeltakwtError(
            f"{source} {name!r}: not available here ({', '.join(available_isas())})"
        )
    return name


class FrontEnd:
    """Sound to MFCC, natively and without a model."""

    def __init__(self, isa: str | None = None) -> None:
        self.isa = choose_isa(isa)
        self._native = _native.FrontEnd(self.isa)

    def features(self, audio: ArrayLike, front_end: FrontEndSetting = PLAIN) -> Floats:
        """(n,) samples in [-1, 1] at 16 kHz -> (frames, 40)."""
        sound = _floats(audio, "sound")
        if sound.ndim != 1 or len(sound) < FRAME_SAMPLES:
            raise DeltakwtError(
                f"sound of shape {sound.shape}: a frame needs {FRAME_SAMPLES} samples"
            )
        try:
            return self._native.features(
                sound, front_end.smooth, front_end.floor, front_end.quantile
            )
        except ValueError as error:
            raise DeltakwtError(str(error)) from None

    def stream(self, front_end: FrontEndSetting = PLAIN) -> FeatureStream:
        """A front end that takes samples as they come."""
        return FeatureStream(self, front_end)


class FeatureStream:
    """The causal front end: push samples in blocks of any size, get the finished rows."""

    def __init__(self, frontend: FrontEnd, front_end: FrontEndSetting = PLAIN) -> None:
        self.front_end = front_end
        self._native = _native.Stream(
            frontend._native, front_end.smooth, front_end.floor, front_end.quantile
        )

    def push(self, audio: ArrayLike) -> Floats:
        """(n,) new samples -> (rows, 40); with smoothing a row comes one frame (10 ms) late."""
        sound = _floats(audio, "sound")
        if sound.ndim != 1:
            raise DeltakwtError(f"sound of shape {sound.shape}: a stream takes one channel")
        try:
            return self._native.push(sound)
        except ValueError as error:
            raise DeltakwtError(str(error)) from None


class Engine:
    """One model, ready to run. May be used by many threads at once."""

    def __init__(
        self, config: Config, tensors: Mapping[str, Floats], isa: str | None = None
    ) -> None:
        self.config = config
        self.isa = choose_isa(isa)
        self.frontend = FrontEnd(self.isa)
        sizes = [
            config.dim,
            config.heads,
            config.mlp,
            config.layers,
            len(config.labels),
            config.frames,
            config.features,
        ]
        try:
            self._native = _native.Model(sizes, _ordered(config, tensors), self.isa)
        except ValueError as error:
            raise DeltakwtError(str(error)) from None

    @property
    def memory_bytes(self) -> int:
        """Memory of the weights and of one thread's scratch."""
        return self._native.memory()

    def features(self, audio: ArrayLike, front_end: FrontEndSetting = PLAIN) -> Floats:
        """(n,) samples in [-1, 1] at 16 kHz -> (frames, 40)."""
        return self.frontend.features(audio, front_end)

    def dense(self, features: ArrayLike) -> Floats:
        """(frames, 40) -> logits (labels,)."""
        logits, _, _ = self._run(features, None, counted=False)
        return logits

    def delta(self, features: ArrayLike, thresholds: Thresholds) -> Run:
        """(frames, 40) -> logits, MACs and non-zero deltas."""
        logits, macs, nonzeros = self._run(features, thresholds, counted=True)
        assert macs is not None
        assert nonzeros is not None
        return Run(logits, macs, nonzeros)

    def logits(self, features: ArrayLike, thresholds: Thresholds | None) -> Floats:
        """(frames, 40) -> logits (labels,), with deltas but without counting them."""
        return self._run(features, thresholds, counted=False)[0]

    def trace(self, features: ArrayLike, thresholds: Thresholds) -> dict[str, NDArray[np.generic]]:
        """What every site saw.

        "x", "q", ... hold the references (layers, T, width), "x.mask" where a delta was kept, and
        "output" (layers, T, d) what each layer hands on. The last layer computes queries, scores
        and all that follows for the class token only: its other rows are zero and not kept.
        """
        theta = thresholds.array(self.config.layers)
        native = self._native.trace(self._checked(features), theta)
        trace: dict[str, NDArray[np.generic]] = {}
        for column, site in enumerate(ALL_SITES):
            trace[site] = native[column]
            trace[f"{site}.mask"] = _mask(native[column], theta[:, column] < 0)
            if site not in ("x", "k", "v"):
                trace[f"{site}.mask"][-1, 1:] = False
        trace["output"] = native[-1]
        return trace

    def times(
        self, features: ArrayLike, thresholds: Thresholds | None, repeats: int = 1
    ) -> NDArray[np.uint64]:
        """(layers, len(STAGES)) nanoseconds, summed over `repeats` runs of the same clip."""
        return self._native.times(self._checked(features), self._array(thresholds), repeats)

    def batch(
        self,
        clips: ArrayLike,
        setting: Setting = DENSE,
        threads: int = 0,
    ) -> Batch:
        """Run many clips: audio (n, 16000), or features (n, 98, 40), on `threads` threads.

        0 threads means one per core. Features were computed before, so the front end of the
        setting applies to audio only.
        """
        array = _floats(clips, "batch")
        shape = (self.config.frames, self.config.features)
        is_audio, front_end = array.ndim == 2, setting.front_end
        if array.shape[1:] != shape and not (is_audio and array.shape[1] == CLIP_SAMPLES):
            raise DeltakwtError(
                f"batch of shape {array.shape}: give audio (n, {CLIP_SAMPLES}) or features"
                f" (n, {shape[0]}, {shape[1]})"
            )
        try:
            logits, macs, nonzeros = self._native.batch(
                self.frontend._native if is_audio else None,
                array,
                self._array(setting.thresholds),
                front_end.smooth,
                front_end.floor,
                front_end.quantile,
                threads,
                setting.thresholds is not None,
            )
        except ValueError as error:
            raise DeltakwtError(str(error)) from None
        is_dense = setting.thresholds is None
        return Batch(logits, None, None) if is_dense else Batch(logits, macs, nonzeros)

    def hearing(
        self,
        setting: Setting,
        hop: int,
        reuse: float,
        onset: int,
        stray: int,
        heard: Floats,
    ) -> _native.Hearing:
        """Ears for one stream; what the arguments mean says `dk_listening` in deltakwt.h."""
        try:
            return _native.Hearing(
                self._native,
                self.frontend._native,
                self._array(setting.thresholds),
                setting.front_end.smooth,
                setting.front_end.floor,
                setting.front_end.quantile,
                hop,
                reuse,
                onset,
                stray,
                heard,
            )
        except ValueError as error:
            raise DeltakwtError(str(error)) from None

    def _array(self, thresholds: Thresholds | None) -> Floats | None:
        return thresholds.array(self.config.layers) if thresholds else None

    def _checked(self, features: ArrayLike) -> Floats:
        array, shape = _floats(features, "features"), (self.config.frames, self.config.features)
        if array.shape != shape:
            raise DeltakwtError(f"features of shape {array.shape}: this model takes {shape}")
        return array

    def _run(
        self, features: ArrayLike, thresholds: Thresholds | None, counted: bool
    ) -> tuple[Floats, NDArray[np.int64] | None, NDArray[np.int64] | None]:
        try:
            return self._native.run(self._checked(features), self._array(thresholds), counted)
        except ValueError as error:
            raise DeltakwtError(str(error)) from None


def _ordered(config: Config, tensors: Mapping[str, Floats]) -> list[Floats]:
    """The tensors in the core's order, which is the order of Config.shapes()."""
    ordered = []
    for name, shape in config.shapes().items():
        if name not in tensors:
            raise DeltakwtError(f"weights: {name} is missing")
        tensor = _floats(tensors[name], name)
        if tensor.shape != shape:
            raise DeltakwtError(f"weights: {name} has shape {tensor.shape}, not {shape}")
        if not np.isfinite(tensor).all():
            raise DeltakwtError(f"weights: {name} holds NaN or infinity")
        ordered.append(tensor)
    return ordered


def _mask(references: Floats, dense: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where deltas were kept: the two exact rows, and wherever a reference changed."""
    mask = np.ones(references.shape, np.bool_)
    mask[:, 2:] = (references[:, 2:] != references[:, 1:-1]) | dense[:, None, None]
    return mask


def _floats(values: ArrayLike, name: str) -> Floats:
    """A contiguous float32 array; other dtypes are converted, nothing else is guessed."""
    try:
        return np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError):
        raise DeltakwtError(f"{name}: is not an array of numbers") from None
