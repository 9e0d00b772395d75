"""Types of the native extension. Use deltakwt.core.engine, which checks its arguments."""

import numpy as np
from numpy.typing import NDArray

def isas() -> list[str]: ...
def best_isa() -> str: ...
def state_bytes(sizes: list[int]) -> NDArray[np.uint64]: ...
def loudest(samples: NDArray[np.float32]) -> float: ...
def reconstruct(rows: NDArray[np.float32], out: NDArray[np.float32], theta: float) -> None: ...

class FrontEnd:
    def __init__(self, isa: str, stride: int) -> None: ...
    def features(
        self, audio: NDArray[np.float32], smooth: bool, floor: float, quantile: float
    ) -> NDArray[np.float32]: ...
    def batch(
        self,
        sounds: NDArray[np.float32],
        smooth: bool,
        floor: float,
        quantile: float,
        threads: int,
    ) -> NDArray[np.float32]: ...

class Stream:
    def __init__(self, frontend: FrontEnd, smooth: bool, floor: float, quantile: float) -> None: ...
    def push(self, audio: NDArray[np.float32]) -> NDArray[np.float32]: ...

class Model:
    def __init__(self, sizes: list[int], tensors: list[NDArray[np.float32]], isa: str) -> None: ...
    def run(
        self,
        features: NDArray[np.float32],
        thresholds: NDArray[np.float32] | None,
        counted: bool,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64] | None, NDArray[np.int64] | None]: ...
    def trace(
        self, features: NDArray[np.float32], thresholds: NDArray[np.float32] | None
    ) -> list[NDArray[np.float32]]: ...
    def times(
        self,
        features: NDArray[np.float32],
        thresholds: NDArray[np.float32] | None,
        repeats: int,
    ) -> NDArray[np.uint64]: ...
    def batch(
        self,
        frontend: FrontEnd | None,
        clips: NDArray[np.float32],
        thresholds: NDArray[np.float32] | None,
        smooth: bool,
        floor: float,
        quantile: float,
        threads: int,
        counted: bool,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]: ...

class StreamRunner:
    def push(self, audio: NDArray[np.float32]) -> tuple[NDArray[np.float32], int, int, int]: ...

class FloatStreamRunner(StreamRunner):
    def __init__(
        self,
        model: Model,
        thresholds: NDArray[np.float32] | None,
        frontend: FrontEnd,
        smooth: bool,
        floor: float,
        quantile: float,
        hop: int,
        reuse: float,
        onset: int,
        outliers: int,
        word_posteriors: NDArray[np.float32],
        span: int,
        bias: NDArray[np.float32],
    ) -> None: ...

class FixedModel:
    def __init__(
        self,
        sizes: list[int],
        tensors: list[NDArray[np.int16]],
        head_bias: NDArray[np.int32],
        numbers: NDArray[np.int32],
        isa: str,
    ) -> None: ...
    def batch(
        self,
        clips: NDArray[np.int16],
        thresholds: NDArray[np.int32] | None,
        threads: int,
        counted: bool,
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]: ...
    def run(
        self,
        features: NDArray[np.float32],
        scales: NDArray[np.float32],
        thresholds: NDArray[np.int32] | None,
        step: float,
        counted: bool,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], int]: ...
    def classify(
        self,
        frontend: FrontEnd,
        sound: NDArray[np.float32],
        smooth: bool,
        floor: float,
        quantile: float,
        scales: NDArray[np.float32],
        thresholds: NDArray[np.int32] | None,
        step: float,
        counted: bool,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], int]: ...
    def features(
        self, features: NDArray[np.float32], scales: NDArray[np.float32]
    ) -> NDArray[np.int16]: ...

class FixedStreamRunner(StreamRunner):
    def __init__(
        self,
        model: FixedModel,
        thresholds: NDArray[np.int32] | None,
        scales: NDArray[np.float32],
        logit_step: float,
        frontend: FrontEnd,
        smooth: bool,
        floor: float,
        quantile: float,
        hop: int,
        reuse: float,
        onset: int,
        outliers: int,
        word_posteriors: NDArray[np.float32],
        span: int,
        bias: NDArray[np.float32],
    ) -> None: ...
