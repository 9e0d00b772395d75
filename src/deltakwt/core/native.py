"""The native front end, and the checks that every call of the native core shares."""

from __future__ import annotations

import os
from operator import index
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltakwt import _native
from deltakwt.core.config import FRAME_SAMPLES, MAX_STRIDE, Config
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.setting import PLAIN, FrontEndSetting

Floats = NDArray[np.float32]


def available_isas() -> tuple[str, ...]:
    """Return the instruction sets that this build and this processor have, "scalar" first."""
    return tuple(_native.isas())


def choose_isa(isa: str | None = None) -> str:
    """Return the instruction set to use: `isa`, or else DELTAKWT_ISA, or else the best one."""
    if isa is not None and not isinstance(isa, str):
        raise DeltakwtError(f"isa {isa!r}: must be one of {', '.join(available_isas())}")
    name = isa or os.environ.get("DELTAKWT_ISA") or _native.best_isa()
    if name not in available_isas():
        source = "isa" if isa else "DELTAKWT_ISA"
        raise DeltakwtError(
            f"{source} {name!r}: not available here ({', '.join(available_isas())})"
        )
    return name


class FrontEnd:
    """Computes MFCC features from sound, without a model: a frame every 10 * `stride` ms."""

    def __init__(self, isa: str | None = None, stride: int = 1) -> None:
        self.isa = choose_isa(isa)
        if not 1 <= whole(stride, "stride") <= MAX_STRIDE:
            raise DeltakwtError(f"stride = {stride}: must be 1 to {MAX_STRIDE}")
        self._native = _native.FrontEnd(self.isa, stride)

    def features(self, audio: ArrayLike, front_end: FrontEndSetting = PLAIN) -> Floats:
        """Return features (frames, 40) of (n,) samples in [-1, 1] at 16 kHz."""
        sound = as_floats(audio, "sound")
        if sound.ndim != 1 or len(sound) < FRAME_SAMPLES:
            raise DeltakwtError(
                f"sound of shape {sound.shape}: a frame needs {FRAME_SAMPLES} samples"
            )
        with native_errors():
            return self._native.features(sound, *front_end_values(front_end))

    def batch(
        self, sounds: ArrayLike, front_end: FrontEndSetting = PLAIN, threads: int = 0
    ) -> Floats:
        """Return features (n, frames, 40) of sounds (n, samples), computed on `threads` threads.

        0 threads means one per core. If the system refuses a thread, fewer are used.
        """
        array, count = as_floats(sounds, "sounds"), whole(threads, "threads")
        with native_errors():
            return self._native.batch(array, *front_end_values(front_end), count)

    def stream(self, front_end: FrontEndSetting = PLAIN) -> FeatureStream:
        """Return a stream that computes features from blocks of samples."""
        return FeatureStream(self, front_end)


class FeatureStream:
    """The front end for a stream: push blocks of any size, get the finished feature rows.

    Several threads may push into one stream; their blocks are taken one after the other.
    """

    def __init__(self, frontend: FrontEnd, front_end: FrontEndSetting = PLAIN) -> None:
        self.front_end = front_end
        with native_errors():
            self._native = _native.Stream(frontend._native, *front_end_values(front_end))

    def push(self, audio: ArrayLike) -> Floats:
        """Return the rows (n, 40) that new samples (n,) finish.

        With smoothing, a row is one frame late.
        """
        sound = one_channel(audio)
        with native_errors():
            return self._native.push(sound)


class native_errors:  # noqa: N801 - a context manager; as a generator it would take 3 us a call
    """Turn the exceptions of the native core into `DeltakwtError`."""

    __slots__ = ("model",)

    def __init__(self, model: str = "") -> None:
        self.model = model

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, OverflowError):
            named = f"model {self.model}" if self.model else "this model"
            raise DeltakwtError(f"{named}: {error}") from None
        if isinstance(error, (TypeError, ValueError)):
            raise DeltakwtError(str(error).partition("\n")[0]) from None


def front_end_values(setting: FrontEndSetting) -> tuple[bool, float, float]:
    """Return a front end as the arguments of the native core."""
    if not isinstance(setting, FrontEndSetting):
        raise DeltakwtError(f"front end {setting!r}: must be a FrontEndSetting")
    return setting.smooth, setting.floor, setting.quantile


def state_bytes(config: Config) -> NDArray[np.uint64]:
    """Return (9, 2): bytes of the reference and of the running result of each site, one layer.

    They are the sizes of the layout that the core runs on, whole cache lines included.
    """
    with native_errors():
        return _native.state_bytes(model_sizes(config))


def model_sizes(config: Config) -> list[int]:
    """Return the sizes of a model in the order of the native core."""
    sizes = [config.dim, config.heads, config.mlp, config.layers]
    return [*sizes, len(config.labels), config.frames, config.features]


def one_channel(audio: ArrayLike) -> Floats:
    """Return the samples (n,) of a stream."""
    sound = as_floats(audio, "sound")
    if sound.ndim != 1:
        raise DeltakwtError(f"sound of shape {sound.shape}: a stream takes one channel")
    return sound


def as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return an array of any kind of numbers."""
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths
        raise DeltakwtError(f"{name}: is not an array of numbers") from None


def as_floats(values: ArrayLike, name: str) -> Floats:
    """Return a contiguous float32 array; other number types are converted."""
    try:
        return np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError, OverflowError):
        raise DeltakwtError(f"{name}: is not an array of numbers") from None


def whole(value: int, name: str) -> int:
    """Return a count that the core can take: a whole number from 0 to 2^32 - 1."""
    try:
        number = index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 2**32:
        raise DeltakwtError(f"{name} = {value!r}: must be a whole number of at least 0")
    return number
