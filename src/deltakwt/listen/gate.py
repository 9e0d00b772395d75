"""A gate: a small model listens, and the large one computes only where that suspects a word.

The small model looks at every third window. If it gives any word a posterior of at least SUSPECTED,
the large model computes this window and those since the last look, and goes on with every window
while it itself finds that a word is possible. After an event it rests until another one can follow;
meanwhile its last answer counts. In all other windows, there is no word. Decisions are made on the
windows of the large model alone, by its own rule, so the words and their times are nearly always
those that it finds without a gate.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES
from deltakwt.core.errors import DeltakwtError
from deltakwt.core.model import Model
from deltakwt.core.setting import Setting
from deltakwt.listen.decision import FRAMES_PER_SECOND, POSSIBLE_WORD, Decision, posteriors
from deltakwt.listen.pcm import RecentSound
from deltakwt.listen.runner import BaseRunner, StreamRunner, Usage

EVERY = 3  # windows from one look of the small model to the next
SUSPECTED = 0.3  # the gate opens if the posterior of a word reaches this
NOTHING = 30.0  # logit of the first label that is no word, in windows that are not computed
LONGEST = 2 * CLIP_SAMPLES  # samples of one part; longer blocks are cut into parts

Logits = NDArray[np.float32]


class GatedRunner(BaseRunner):
    """Does what `StreamRunner` does, with a gate. Logits come up to EVERY - 1 windows later."""

    def __init__(self, gate: Model, model: Model, setting: Setting, decision: Decision) -> None:
        super().__init__(model, setting, decision)
        self.is_same = False  # whether the last push gave only windows without a word, as before
        self._model, self._macs = model, 0
        self._every = _every(decision, gate.config.stride)
        hop = self._every * decision.hop_frames / FRAMES_PER_SECOND
        # The bias fits the large model's logits; those of the small one are used as they are.
        self._gate = StreamRunner(gate, gate.setting, replace(decision, hop=hop, unknown_bias=0.0))
        self._bias = decision.biases(model.labels)
        self._words = _word_places(model)
        self._gate_words = _word_places(gate)
        if missing := {model.labels[i] for i in self._words} - set(gate.labels):
            raise DeltakwtError(f"gate {gate.name}: does not know the word {min(missing)!r}")
        self._nothing = np.zeros(len(model.labels), np.float32)
        others = [i for i in range(len(model.labels)) if i not in self._words]
        self._nothing[others[:1]] = NOTHING
        self._recent = RecentSound(2 * LONGEST, LONGEST)
        self._suspicions: deque[bool] = deque()  # of the looks whose windows are not due yet
        self._next = 0  # the next window
        self._is_open = False
        self._newest = np.zeros(0, np.float32)  # the logits of the newest window
        self._due_with: dict[int, int] = {}  # see `due_with`
        self.saturated = 0  # tensors that reached the limit of 16 bits so far

    def due_with(self, window: int) -> int:
        """Return the window that had to be complete before this one was known, in the last push."""
        return self._due_with.get(window, window)

    def ending(self, samples: int) -> int:
        """Return how many zeros to append, so that the last look is behind all words."""
        zeros = max(super().ending(samples), self._gate.ending(samples))
        return zeros if samples <= CLIP_SAMPLES else zeros + (self._every - 1) * self.hop_samples

    @property
    def missing(self) -> int:
        """How many samples must still come before anything can be computed."""
        return self._needed(self._last_of_next()) - self._recent.total

    def push(self, samples: NDArray[np.float32]) -> Logits:
        """Take (n,) samples at 16 kHz and return the (windows, labels) logits that are due."""
        begun, before = time.thread_time(), self._gate.meter.total.macs
        rows: list[Logits] = []
        computed, self._macs, last = 0, 0, self._newest
        self._due_with.clear()
        for start in range(0, len(samples), LONGEST):
            part = samples[start : start + LONGEST]
            self._recent.push(part)
            self._suspicions += self._suspected(self._gate.push(part))
            computed += self._run(rows)
        self.is_same = all(row is last for row in rows)
        self._macs += self._gate.meter.total.macs - before
        spent = time.thread_time() - begun
        self.meter.add(Usage(len(samples), len(rows), computed, self._macs, spent))
        return np.stack(rows) if rows else np.zeros((0, len(self._nothing)), np.float32)

    def _suspected(self, logits: Logits) -> list[bool]:
        """Return, for each window that the small model computed, whether it suspects a word."""
        if not len(logits):
            return []
        found: list[bool] = (posteriors(logits)[:, self._gate_words].max(1) >= SUSPECTED).tolist()
        return found

    def _run(self, rows: list[Logits]) -> int:
        """Append the logits of all windows that are due. Return how many were computed."""
        computed = 0
        while True:
            first, last = self._next, self._last_of_next()
            if self._needed(last) > self._recent.total:
                return computed
            is_suspected = last % self._every == 0 and self._suspicions.popleft()
            if self._is_open and last < self.needed_from:
                rows.append(self._newest)
            elif self._is_open or is_suspected:
                rows += [self._logits(window) for window in range(first, last + 1)]
                computed += last + 1 - first
                words = posteriors(rows[-1][None])[0, self._words]
                self._is_open = bool(words.max() >= POSSIBLE_WORD)
            else:
                rows += [self._nothing] * (last + 1 - first)
            self._newest = rows[-1]
            self._due_with.update(dict.fromkeys(range(first, last), last))
            self._next = last + 1

    def _last_of_next(self) -> int:
        """Return the last of the windows that come next: all up to the next look, if closed."""
        return self._next if self._is_open else -(-self._next // self._every) * self._every

    def _needed(self, window: int) -> int:
        """Return how many samples the model needs for a window, and the gate if it looks at it."""
        needed = self.window_done(window)
        if window % self._every == 0:
            needed = max(needed, self._gate.window_done(window // self._every))
        return needed

    def _logits(self, window: int) -> Logits:
        start = self.window_start(window)
        sound = self._recent.cut(start, start + CLIP_SAMPLES)
        engine, setting = self._model.engine, self.setting
        found = engine.classify(sound, setting.front_end, setting.thresholds)
        self._macs += self.meter.dense_macs if found.macs is None else int(found.macs.sum())
        self.saturated += found.saturated
        return found.logits + self._bias


def _every(decision: Decision, stride: int) -> int:
    """Return the windows from one look to the next: at most EVERY, and whole frames of the gate."""
    most = max(1, min(EVERY, FRAMES_PER_SECOND // decision.hop_frames))
    fitting = (n for n in range(most, 0, -1) if n * decision.hop_frames % stride == 0)
    return next(fitting, most)


def _word_places(model: Model) -> list[int]:
    """Return the places of the words among the labels. There is at least one."""
    words = [i for i, label in enumerate(model.labels) if not label.startswith("_")]
    if not words:
        raise DeltakwtError(f"model {model.name}: has no words")
    return words
