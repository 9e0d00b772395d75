"""Streaming inference: 16 kHz samples as they come, one row of logits per hop, and their cost.

The native core does the work; this module builds its settings and meters what it did. Everything
is counted in samples and frames since the start of the stream, so the way a stream is cut into
blocks changes nothing. Frame k is complete when sample 160 k + 480 is there (320 k + 480 if the
model has a stride of 2), or one frame later if the front end smooths over time. Window w is the 98
(or 49) frames from frame w * hop on. Each frame is computed once.

A window that is close to the last computed window keeps its logits (see `Decision.reuse`). The
comparison is with the last window that was *computed*, so small changes add up and are noticed.
Windows on which no word can depend are not computed either (see `Decision.needed`).
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, HOP_SAMPLES, SAMPLE_RATE
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting
from deltakwt.listen.decision import POSSIBLE_WORD, Decision

MINUTE = 60  # seconds


@dataclass
class Usage:
    """What was computed for a stretch of sound."""

    samples: int = 0
    windows: int = 0  # windows that ended in this sound
    computed: int = 0  # windows that were run; the others kept the logits of an earlier one
    macs: int = 0
    cpu: float = 0.0  # seconds of one core

    def add(self, other: Usage) -> None:
        self.samples += other.samples
        self.windows += other.windows
        self.computed += other.computed
        self.macs += other.macs
        self.cpu += other.cpu


@dataclass(frozen=True)
class Reading:
    """The usage of a stretch of sound as shares and rates."""

    seconds: float
    windows: int
    macs_percent: float  # of running the dense model on every window
    macs_per_second: float  # per second of sound
    reused_percent: float  # windows that were not run
    cpu_percent: float  # of one core, if the sound comes in real time

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 3),
            "windows": self.windows,
            "macs_percent": round(self.macs_percent, 3),
            "macs_per_second": round(self.macs_per_second),
            "reused_percent": round(self.reused_percent, 2),
            "cpu_percent": round(self.cpu_percent, 3),
        }


class Meter:
    """Adds up MACs and processor time: of about one second, of a minute, and of the whole stream.

    Time is the sound's own (samples pushed), so a file that is read faster than real time gives the
    same readings as a microphone. Memory is bounded: one `Usage` per second of the last minute.
    """

    def __init__(self, dense_macs: int) -> None:
        self.dense_macs = dense_macs  # of one window
        self.total = Usage()
        self._seconds: deque[tuple[int, Usage]] = deque()  # (second, its usage)

    def add(self, usage: Usage) -> None:
        """Add the usage of the next stretch of sound."""
        self.total.add(usage)
        second = self.total.samples // SAMPLE_RATE
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, Usage()))
        self._seconds[-1][1].add(usage)
        while self._seconds[0][0] < second - MINUTE:
            self._seconds.popleft()

    def add_cpu(self, cpu: float) -> None:
        """Add processor time to the stretch that was added last."""
        self.total.cpu += cpu
        if self._seconds:
            self._seconds[-1][1].cpu += cpu

    @property
    def now(self) -> Reading:
        """The reading of about the last second, or of the last block if blocks are longer."""
        return self._recent(1)

    @property
    def minute(self) -> Reading:
        return self._recent(MINUTE)

    @property
    def ever(self) -> Reading:
        """The reading since the start of the stream."""
        return self._reading(self.total)

    def _recent(self, seconds: int) -> Reading:
        """Read the newest entries that together last `seconds`."""
        recent = Usage()
        for _, usage in reversed(self._seconds):
            recent.add(usage)
            if recent.samples >= seconds * SAMPLE_RATE:
                break
        return self._reading(recent)

    def _reading(self, usage: Usage) -> Reading:
        seconds = usage.samples / SAMPLE_RATE
        windows = max(usage.windows, 1)
        return Reading(
            seconds,
            usage.windows,
            100 * usage.macs / (windows * self.dense_macs),
            usage.macs / seconds if seconds else 0.0,
            100 * (usage.windows - usage.computed) / windows,
            100 * usage.cpu / seconds if seconds else 0.0,
        )

    def to_json(self) -> dict[str, Any]:
        spans = {"now": self.now, "minute": self.minute, "ever": self.ever}
        return {name: reading.to_json() for name, reading in spans.items()}


class BaseRunner:
    """What all runners share: the meter, and the times of the windows, counted in samples."""

    def __init__(self, model: Model, setting: Setting, decision: Decision) -> None:
        self.setting = setting
        self.delay = model.config.delay(setting.front_end.smooth)  # samples after a window
        self.meter = Meter(int(dense_macs(model.config).sum()))
        self.hop_samples = decision.hop_frames * HOP_SAMPLES
        self.needed_from = 0  # no event can depend on the windows before this one any more
        self._patience = decision.patience
        self._rows = decision.rows(model.config.stride)  # of a hop, and to compare

    def continue_meter(self, meter: Meter) -> None:
        """Add to this meter from now on; dense MACs are those of this runner's model."""
        meter.dense_macs, self.meter = self.meter.dense_macs, meter

    def window_start(self, window: int) -> int:
        """Return the first sample of a window."""
        return window * self.hop_samples

    def window_done(self, window: int) -> int:
        """Return the number of samples that must be there to compute a window."""
        return self.window_start(window) + CLIP_SAMPLES + self.delay

    def due_with(self, window: int) -> int:
        """Return the window whose sound had to be there to know the logits of this one."""
        return window

    def ending(self, samples: int) -> int:
        """Return how many zeros to append to a sound of `samples` samples.

        Up to one second it is one clip: zeros complete its only window. To a longer sound a second
        is appended, so that its last sample passes through the whole window, and then as much as a
        candidate waits.
        """
        if samples <= CLIP_SAMPLES:
            return self.window_done(0) - samples
        return self.window_done(self._patience)


class StreamRunner(BaseRunner):
    """Front end, windows and model of one stream, and the meter of what they cost.

    `every_window`: compute every window also while no word is possible.
    """

    def __init__(
        self, model: Model, setting: Setting, decision: Decision, every_window: bool = True
    ) -> None:
        super().__init__(model, setting, decision)
        self.is_same = False  # whether the last push computed no window
        hop, onset = self._rows
        is_word = decision.thresholds(model.labels) <= 1
        possible = np.where(is_word, POSSIBLE_WORD, 2.0).astype(np.float32)
        self._native = model.engine.stream_runner(
            setting,
            hop=hop,
            reuse=decision.reuse,
            onset=onset,
            outliers=decision.outliers_allowed,
            word_posteriors=possible,
            span=0 if every_window else decision.span(model.labels),
            bias=decision.biases(model.labels),
        )

    @property
    def saturated(self) -> int:
        """Tensors that reached the limit of 16 bits so far; always 0 in float arithmetic."""
        return self._native.saturated

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Take (n,) samples at 16 kHz and return the (windows, labels) logits that are due."""
        before = time.thread_time()
        logits, computed, macs = self._native.push(samples)
        self.is_same = not computed
        spent = time.thread_time() - before
        self.meter.add(Usage(len(samples), len(logits), computed, macs, spent))
        return logits
