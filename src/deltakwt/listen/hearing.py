"""From 16 kHz samples as they come to one row of logits every hop: each frame is computed once.

The native core does the work; here its settings are put together and what it did is metered.
Everything is counted in samples and frames since the start, never in blocks, so the cut of the
stream into blocks changes nothing. Frame k is done when sample 160 k + 480 is there (one frame
later where the front end smooths); window w is the 98 frames from w * hop on.

A window that differs from the last computed one by at most `reuse` in every feature is not
computed: it would be told apart by less than that. The comparison is with the last window that was
*computed*, so small changes cannot add up unnoticed. While nothing that could be a word is heard,
only the newest frames (`onset`) are compared, since that is where a word will begin and what is
older was no word before, and a few features (`stray`) may differ more: a click is not a word.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, HOP_SAMPLES
from deltakwt.core.macs import dense_macs
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting
from deltakwt.listen.decision import MAYBE, Decision
from deltakwt.listen.meter import Meter, Tally


class Hearing:
    """Front end, windows and model of one stream, with the meter that watches them."""

    def __init__(self, model: Model, setting: Setting, decision: Decision) -> None:
        self.front_end = setting.front_end
        self.meter = Meter(int(dense_macs(model.config).sum()))
        self.is_same = False  # the last push gave only windows that were not computed
        self._hop = decision.hop_frames * HOP_SAMPLES
        maybe = np.where(decision.thresholds(model.labels) > 1, 2.0, MAYBE).astype(np.float32)
        self._native = model.engine.stream_runner(
            setting,
            hop=decision.hop_frames,
            reuse=decision.reuse,
            onset=decision.onset_frames,
            outliers=decision.stray_features,
            word_posteriors=maybe,
        )

    def push(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,) samples at 16 kHz -> (windows, labels) logits of those now due."""
        before = time.thread_time()
        logits, computed, macs = self._native.push(samples)
        self.is_same = not computed
        spent = time.thread_time() - before
        self.meter.add(Tally(len(samples), len(logits), computed, macs, spent))
        return logits

    def window_start(self, window: int) -> int:
        """First sample of a window."""
        return window * self._hop

    def window_done(self, window: int) -> int:
        """Samples that must be there before a window can be computed."""
        return self.window_start(window) + CLIP_SAMPLES + HOP_SAMPLES * self.front_end.smooth
