"""The Python interface of the native engine: runs, traces, batches and streams.

Every function checks what it is given and raises `DeltakwtError` for bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.core.config import CLIP_SAMPLES, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.macs import PRODUCTS
from deltakwt.core.native import (
    Floats,
    FrontEnd,
    as_floats,
    choose_isa,
    front_end_values,
    model_sizes,
    native_errors,
    one_channel,
    whole,
)
from deltakwt.core.setting import (
    ALL_SITES,
    DENSE,
    PLAIN,
    FrontEndSetting,
    Setting,
    Thresholds,
)

# The stages that Engine.times measures: products, the scan of each site, the rest of a layer.
STAGES = (
    *PRODUCTS,
    *(f"scan_{site}" for site in ALL_SITES),
    "softmax",
    "gelu",
    "norm",
    "layout",
)


# What every native stream runner takes: front end, its setting, hop, reuse, onset, outliers,
# word posteriors, span, bias.
RunnerOptions = tuple[
    _native.FrontEnd, bool, float, float, int, float, int, int, Floats, int, Floats
]


@dataclass(frozen=True)
class Run:
    """The result of one clip with deltas."""

    logits: Floats  # (labels,)
    macs: NDArray[np.int64]  # (layers, 6), in the order of macs.PRODUCTS
    nonzeros: NDArray[np.int64]  # (layers, 9), in the order of setting.ALL_SITES


@dataclass(frozen=True)
class Batch:
    """The results of many clips; the counts are None for dense runs."""

    logits: Floats  # (n, labels)
    macs: NDArray[np.int64] | None  # (n, layers, 6)
    nonzeros: NDArray[np.int64] | None  # (n, layers, 9)


@dataclass(frozen=True)
class Outcome:
    """The result of one clip, with deltas or dense; the counts are None for a dense run."""

    logits: Floats  # (labels,)
    macs: NDArray[np.int64] | None
    nonzeros: NDArray[np.int64] | None
    saturated: int = 0  # tensors that reached the limit of 16 bits; 0 in float arithmetic


class WindowRunner:
    """Streaming inference: push samples, get the logits of one window every hop.

    Made by `Engine.stream_runner`. Several threads may push into one runner; their blocks are
    taken one after the other. `saturated` counts the tensors that reached the limit of 16 bits,
    over all windows; it stays 0 in float arithmetic.
    """

    def __init__(self, native: _native.StreamRunner, model: str) -> None:
        self._native = native
        self._model = model
        self.saturated = 0

    def push(self, audio: ArrayLike) -> tuple[Floats, int, int]:
        """Return logits (windows, labels), the number of computed windows, and their MACs."""
        sound = one_channel(audio)
        with native_errors(self._model):
            logits, computed, macs, saturated = self._native.push(sound)
        self.saturated += saturated
        return logits, computed, macs


class Engine:
    """One model, ready to run. Many threads may use it at the same time.

    `name` is the model's name in error messages.
    """

    arithmetic = "float"

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, Floats],
        isa: str | None = None,
        name: str = "",
    ) -> None:
        self.config = config
        self.name = name
        self.isa = choose_isa(isa)
        self.frontend = FrontEnd(self.isa, config.stride)
        self._last: tuple[Thresholds | None, Floats | None] = (None, None)
        with native_errors(name):
            self._native = _native.Model(model_sizes(config), _ordered(config, tensors), self.isa)

    def features(self, audio: ArrayLike, front_end: FrontEndSetting = PLAIN) -> Floats:
        """Return features (frames, 40) of (n,) samples in [-1, 1] at 16 kHz."""
        return self.frontend.features(audio, front_end)

    def dense(self, features: ArrayLike) -> Floats:
        """Return logits (labels,) of features (frames, 40), computed without deltas."""
        logits, _, _ = self._run(features, None, counted=False)
        return logits

    def delta(self, features: ArrayLike, thresholds: Thresholds) -> Run:
        """Return logits, MACs and kept deltas of features (frames, 40)."""
        logits, macs, nonzeros = self._run(features, thresholds, counted=True)
        assert macs is not None
        assert nonzeros is not None
        return Run(logits, macs, nonzeros)

    def run(self, features: ArrayLike, thresholds: Thresholds | None) -> Outcome:
        """Return logits and counts of features (frames, 40); None runs the dense model."""
        return Outcome(*self._run(features, thresholds, counted=thresholds is not None))

    def classify(
        self, sound: Floats, front_end: FrontEndSetting, thresholds: Thresholds | None
    ) -> Outcome:
        """Return logits and counts of one second of sound (16000,)."""
        return self.run(self.features(sound, front_end), thresholds)

    def runner(self, thresholds: Thresholds | None) -> Callable[[Floats], Floats]:
        """Return a function from features (frames, 40) to logits, with few checks."""
        table = self._array(thresholds)
        return lambda features: self._native.run(features, table, False)[0]

    def logits(self, features: ArrayLike, thresholds: Thresholds | None) -> Floats:
        """Return logits (labels,) of features (frames, 40), with deltas but without counts."""
        return self._run(features, thresholds, counted=False)[0]

    def trace(self, features: ArrayLike, thresholds: Thresholds) -> dict[str, NDArray[np.generic]]:
        """Return the references and the kept deltas of every site.

        "x", "q", ... hold the references (layers, T, width), "x.mask" where a delta was kept, and
        "output" (layers, T, d) the output of each layer. The last layer computes queries, scores
        and everything after them for the class token only: its other rows are zero and not kept.
        """
        checked, theta = self._checked(features), self._array(thresholds)
        if theta is None:
            raise DeltakwtError("a trace needs thresholds")
        with native_errors(self.name):
            native = self._native.trace(checked, theta)
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
        """Return nanoseconds (layers, len(STAGES)), summed over `repeats` runs of one clip."""
        checked, theta = self._checked(features), self._array(thresholds)
        count = whole(repeats, "repeats")
        with native_errors(self.name):
            return self._native.times(checked, theta, count)

    def batch(
        self,
        clips: ArrayLike,
        setting: Setting = DENSE,
        threads: int = 0,
    ) -> Batch:
        """Run many clips: audio (n, 16000), or features (n, frames, 40), on `threads` threads.

        0 threads means one per core. If the system refuses a thread, fewer are used. The
        front end of the setting applies to audio only.
        """
        array, count = as_floats(clips, "batch"), whole(threads, "threads")
        if not isinstance(setting, Setting):
            raise DeltakwtError(f"setting {setting!r}: must be a Setting")
        shape = (self.config.frames, self.config.features)
        is_audio, is_dense = array.ndim == 2, setting.thresholds is None
        if array.shape[1:] != shape and not (is_audio and array.shape[1] == CLIP_SAMPLES):
            raise DeltakwtError(
                f"batch of shape {array.shape}: give audio (n, {CLIP_SAMPLES}) or features"
                f" (n, {shape[0]}, {shape[1]})"
            )
        with native_errors(self.name):
            logits, macs, nonzeros = self._native.batch(
                self.frontend._native if is_audio else None,
                array,
                self._array(setting.thresholds),
                *front_end_values(setting.front_end),
                count,
                not is_dense,
            )
        return Batch(logits, None, None) if is_dense else Batch(logits, macs, nonzeros)

    def stream_runner(
        self,
        setting: Setting,
        *,
        hop: int,
        reuse: float,
        onset: int,
        outliers: int,
        word_posteriors: ArrayLike,
        span: int = 0,
        bias: ArrayLike | None = None,
    ) -> WindowRunner:
        """Return a runner for one stream that computes a window every `hop` frames.

        A window whose features differ by at most `reuse` from those of the last computed window
        is not computed again. After a window in which no label reached its value of
        `word_posteriors` (labels,), only the newest `onset` frames are compared, and `outliers`
        features may differ by more.

        With a `span`, one window of so many is computed while no label reaches its value of
        `word_posteriors`. The others get the logits of an earlier one, up to `span` - 1 windows
        late.

        `bias` (labels,) is added to the logits of every window.
        """
        frames = [whole(value, name) for value, name in ((hop, "hop"), (onset, "onset"))]
        with native_errors(self.name):
            native = self._native_runner(
                setting.thresholds,
                self.frontend._native,
                *front_end_values(setting.front_end),
                frames[0],
                reuse,
                frames[1],
                whole(outliers, "outliers"),
                as_floats(word_posteriors, "word_posteriors"),
                whole(span, "span"),
                as_floats(np.zeros(len(self.config.labels)) if bias is None else bias, "bias"),
            )
        return WindowRunner(native, self.name)

    def _native_runner(
        self, thresholds: Thresholds | None, *options: *RunnerOptions
    ) -> _native.StreamRunner:
        return _native.FloatStreamRunner(self._native, self._array(thresholds), *options)

    def _array(self, thresholds: Thresholds | None) -> Floats | None:
        if thresholds is None:
            return None
        if not isinstance(thresholds, Thresholds):
            raise DeltakwtError(f"thresholds {thresholds!r}: must be Thresholds or None")
        last, table = self._last  # one assignment below: threads see both or neither
        if last is not thresholds:
            table = thresholds.array(self.config.layers)
            self._last = thresholds, table
        return table

    def _checked(self, features: ArrayLike) -> Floats:
        array, shape = as_floats(features, "features"), (self.config.frames, self.config.features)
        if array.shape != shape:
            raise DeltakwtError(f"features of shape {array.shape}: this model takes {shape}")
        return array

    def _run(
        self, features: ArrayLike, thresholds: Thresholds | None, counted: bool
    ) -> tuple[Floats, NDArray[np.int64] | None, NDArray[np.int64] | None]:
        checked, theta = self._checked(features), self._array(thresholds)
        with native_errors(self.name):
            return self._native.run(checked, theta, counted)


def _ordered(config: Config, tensors: Mapping[str, Floats]) -> list[Floats]:
    """Return the tensors in the order of the core, which is that of Config.shapes()."""
    ordered = []
    for name, shape in config.shapes().items():
        if name not in tensors:
            raise DeltakwtError(f"weights: {name} is missing")
        tensor = as_floats(tensors[name], name)
        if tensor.shape != shape:
            raise DeltakwtError(f"weights: {name} has shape {tensor.shape}, not {shape}")
        if not np.isfinite(tensor).all():
            raise DeltakwtError(f"weights: {name} holds NaN or infinity")
        ordered.append(tensor)
    return ordered


def _mask(references: Floats, dense: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where deltas were kept: the two exact rows, and where a reference changed."""
    mask = np.ones(references.shape, np.bool_)
    mask[:, 2:] = (references[:, 2:] != references[:, 1:-1]) | dense[:, None, None]
    return mask
