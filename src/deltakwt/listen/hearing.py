"""From 16 kHz samples as they come to one row of logits every hop: each frame is computed once.

Everything is counted in samples and frames since the start, never in blocks, so the cut of the
stream into blocks changes nothing. Frame k is done when sample 160 k + 480 is there (one frame
later where the front end smooths); window w is the 98 frames from w * hop on.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from deltakwt.config import CLIP_SAMPLES, FRAMES, HOP_SAMPLES, SAMPLE_RATE
from deltakwt.frontend import Steady
from deltakwt.listen.decision import Decision
from deltakwt.listen.meter import Meter, Tally
from deltakwt.macs import dense_macs, shortcut_macs
from deltakwt.model import Model
from deltakwt.thresholds import Thresholds

Features = NDArray[np.float32]
LONGEST = 10 * SAMPLE_RATE  # samples taken at once; what is longer is cut, so memory is bounded


class Windows:
    """The last second of feature rows, and the windows that are due.

    A window that differs from the last computed one by at most `reuse` in every feature is not
    computed: it would be told apart by less than that. The comparison is with the last window
    that was *computed*, so small changes cannot add up unnoticed.
    """

    def __init__(self, hop: int, reuse: float) -> None:
        self.hop, self.reuse = hop, np.float32(reuse)
        self._rows = np.zeros((0, 0), np.float32)  # that later windows still need
        self._computed: Features | None = None

    def push(self, rows: Features) -> tuple[Features, list[bool]]:
        """(n, 40) new rows -> (m, 98, 40) windows to compute, and for each due one if it is new."""
        held = np.concatenate([self._rows, rows]) if len(self._rows) else rows
        due = max(0, (len(held) - FRAMES) // self.hop + 1)
        self._rows = held[due * self.hop :].copy()
        fresh, chosen = [], []
        for start in range(0, due * self.hop, self.hop):
            window = held[start : start + FRAMES]
            fresh.append(not self._near(window))
            if fresh[-1]:
                self._computed = window
                chosen.append(window)
        if not chosen:
            return held[:0].reshape(0, FRAMES, rows.shape[1]), fresh
        self._computed = chosen[-1].copy()  # not a view that keeps the block alive
        return np.stack(chosen), fresh

    def _near(self, window: Features) -> bool:
        if self._computed is None:
            return False
        difference = window - self._computed
        return bool(np.abs(difference, out=difference).max() <= self.reuse)


class Hearing:
    """Front end, windows and model of one stream, with the meter that watches them."""

    def __init__(
        self, model: Model, thresholds: Thresholds | None, steady: Steady, decision: Decision
    ) -> None:
        self.model, self.thresholds, self.steady = model, thresholds, steady
        self.meter = Meter(int(dense_macs(model.config).sum()))
        self._dense_run = int(shortcut_macs(model.config).sum())
        self._front = model.engine.frontend.stream(steady)
        self._windows = Windows(decision.hop_frames, decision.reuse)
        self._logits = np.zeros((1, len(model.labels)), np.float32)  # of the last computed window

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,) samples at 16 kHz, at most LONGEST -> (windows, labels) logits of those now due."""
        before = time.thread_time()
        features, fresh = self._windows.push(self._front.push(samples))
        macs = 0
        if len(features):
            batch = self.model.engine.batch(features, thresholds=self.thresholds, threads=1)
            dense = self._dense_run * len(features)
            macs = dense if batch.macs is None else int(batch.macs.sum())
            known = np.concatenate([self._logits, batch.logits])
            self._logits = known[-1:].copy()
            logits = known[np.cumsum(fresh, dtype=np.intp)]  # an old window: the one before
        else:
            logits = self._logits.repeat(len(fresh), axis=0)
        spent = time.thread_time() - before
        self.meter.add(Tally(len(samples), len(fresh), len(features), macs, spent))
        return logits

    def window_start(self, window: int) -> int:
        """First sample of a window."""
        return window * self._windows.hop * HOP_SAMPLES

    def window_done(self, window: int) -> int:
        """Samples that must be there before a window can be computed."""
        return self.window_start(window) + CLIP_SAMPLES + HOP_SAMPLES * self.steady.smooth
