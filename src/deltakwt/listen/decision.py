"""From the logits of overlapping windows to words: the whole decision layer, and its arithmetic.

Deliberately small, so that it can be written again in C and give the same words. All numbers are
float32 unless said otherwise; `+` is done in the order written.

1. Posterior: m = max(l); e_i = float32(exp(double(l_i - m))); sum = e_0 + e_1 + ...; p_i = e_i/sum.
2. Smoothing: s = (p[w-n+1] + ... + p[w]) / n, oldest first; windows before the first count as 0.
3. A word whose s falls below `off` is armed (again). Labels that begin with "_" are no words.
4. Outside the refractory time, the armed word with the highest s (the first of equals), if it
   reaches its `on`, becomes the candidate; a higher one replaces it.
5. `patience` windows after the first candidate the candidate is the event: it is disarmed, and
   for the refractory time nothing else is heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import FRAMES
from deltakwt.core.errors import DeltakwtError

FRAMES_A_SECOND = 100
NEVER = -1
MAYBE = 0.15  # posterior of a window that could hold a word


@dataclass(frozen=True)
class Decision:
    """The settings of continuous listening; a model's own stand in its config.json, "decision"."""

    hop: float = 0.1  # seconds from window to window, a multiple of 10 ms
    reuse: float = 3.0  # a window this near (greatest difference of a feature) to the last
    #                     computed one is not computed again; 0: only an equal one, which is exact
    onset: float = 0.35  # while nothing that could be a word is heard, only so many newest seconds
    #                      are compared,
    stray: int = 2  # and so many features may differ more
    smooth: int = 3  # windows whose posteriors are averaged
    on: float = 0.8  # smoothed posterior that makes a word a candidate
    off: float = 0.4  # below it a word is over
    patience: int = 1  # windows in which a better candidate may still come
    refractory: float = 1.0  # seconds without another event
    words: Mapping[str, float] = field(default_factory=dict)  # `on` of single words

    def __post_init__(self) -> None:
        checks = {
            "hop": 0.01 <= self.hop <= 1 and abs(self.hop * 100 - round(self.hop * 100)) < 1e-6,
            "reuse": 0 <= self.reuse < float("inf"),
            "onset": 0.01 <= self.onset <= 1,
            "stray": 0 <= self.stray <= 10_000,
            "smooth": 1 <= self.smooth <= 100,
            "on": 0 < self.on <= 1,
            "off": 0 < self.off <= self.on,
            "patience": 0 <= self.patience <= 100,
            "refractory": 0 <= self.refractory <= 60,
            "words": all(0 < on <= 1 for on in self.words.values()),
        }
        for name, good in checks.items():
            if not good:
                raise DeltakwtError(f"decision: {name} = {getattr(self, name)!r}: {_RANGES[name]}")

    @property
    def hop_frames(self) -> int:
        return round(self.hop * FRAMES_A_SECOND)

    @property
    def onset_frames(self) -> int:
        """At least what is new in a window, at most all of it, which exact reuse asks for."""
        wanted = max(round(self.onset * FRAMES_A_SECOND), self.hop_frames)
        return min(wanted, FRAMES) if self.reuse else FRAMES

    @property
    def stray_features(self) -> int:
        """None where reuse is exact."""
        return self.stray if self.reuse else 0

    @property
    def refractory_windows(self) -> int:
        """The number of windows after an event that cannot hold another one, rounded."""
        return round(self.refractory * FRAMES_A_SECOND / self.hop_frames)

    def thresholds(self, labels: Sequence[str]) -> NDArray[np.float32]:
        """(labels,): `on` of every label, 2 (out of reach) where it is no word."""
        return np.array(
            [2 if label.startswith("_") else self.words.get(label, self.on) for label in labels],
            np.float32,
        )

    def at(self, on: float) -> Decision:
        """The same with every threshold moved to `on`, `off` following where it must."""
        return replace(self, on=on, off=min(self.off, on), words={})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "decision") -> Decision:
        """Settings of a config.json; what is left out has its default."""
        kinds = [one.name for one in fields(cls)]
        if not isinstance(data, Mapping) or (unknown := set(data) - set(kinds)):
            problem = f"unknown key {min(unknown)!r}" if isinstance(data, Mapping) else "no object"
            raise DeltakwtError(f"{where}: {problem}; keys are {', '.join(kinds)}")
        values: dict[str, Any] = {}
        for name, value in data.items():
            if name == "words":
                good = isinstance(value, Mapping) and all(map(_number, value.values()))
            else:
                good = _number(value) and (name not in _WHOLE or value == int(value))
            if not good:
                raise DeltakwtError(f"{where}: {name} = {value!r} is of a wrong type")
            values[name] = value if name == "words" else _WHOLE.get(name, float)(value)
        return cls(**values)


_WHOLE: dict[str, Any] = {"stray": int, "smooth": int, "patience": int}
_RANGES = {
    "hop": "must be 0.01 to 1 second, a multiple of 0.01",
    "reuse": "must be 0 (exact) or a positive number",
    "onset": "must be 0.01 to 1 second",
    "stray": "must be 0 to 10000 features",
    "smooth": "must be 1 to 100 windows",
    "on": "must lie above 0 and at most at 1",
    "off": "must lie above 0 and at most at `on`",
    "patience": "must be 0 to 100 windows",
    "refractory": "must be 0 to 60 seconds",
    "words": "each must lie above 0 and at most at 1",
}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def posteriors(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, labels): softmax, in the arithmetic described above."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers: NDArray[np.float32] = np.exp(shifted.astype(np.float64)).astype(np.float32)
    powers /= powers.cumsum(axis=1)[:, -1:]  # cumsum: from left to right, as C would add
    return powers


@dataclass(frozen=True)
class Decided:
    """An event in windows: the one that decided it, the best one, the first one that heard it."""

    label: int
    score: np.float32  # smoothed posterior of the best window
    first: int
    peak: int
    window: int


class Decider:
    """The decision layer's state. Windows are pushed in order, any number at a time."""

    def __init__(self, decision: Decision, labels: Sequence[str]) -> None:
        self.decision = decision
        self._words = [i for i, label in enumerate(labels) if not label.startswith("_")]
        self._on = [float(on) for on in decision.thresholds(labels)]
        self._off = float(np.float32(decision.off))
        self._history = np.zeros((decision.smooth - 1, len(labels)), np.float32)
        self._window = 0  # the next one
        self._armed = [True] * len(labels)
        self._first = [NEVER] * len(labels)  # since which window a word is at `off` or above
        self._candidate: Decided | None = None  # its `window` is the first candidate's
        self._ready = 0  # the window at which the refractory time is over
        self._idle = True  # a quiet window would change nothing
        self._still = 0  # windows in a row that were the same

    @property
    def is_still(self) -> bool:
        """No word is near, and the last windows were all the same."""
        return self._idle and self._still >= self.decision.smooth

    def push(self, logits: NDArray[np.float32], is_same: bool = False) -> list[Decided]:
        """(n, labels) logits of the next windows -> the events they complete.

        `is_same`: each is the row that was pushed last, as in a quiet room. Once the whole history
        is, another one changes nothing, and nothing is computed.
        """
        if is_same and self.is_still:
            self._window += len(logits)
            return []
        self._still = self._still + len(logits) if is_same else 0
        smoothed = self._smooth(posteriors(logits)) if len(logits) else logits
        events = []
        for scores in smoothed.tolist():
            is_loud = any(scores[word] >= self._off for word in self._words)
            if is_loud:
                self._still = 0
            if (is_loud or not self._idle) and (event := self._step(scores)):
                events.append(event)
            self._window += 1
        return events

    def _smooth(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, labels): the mean of each window and those before it."""
        count, n = self.decision.smooth, len(scores)
        known = np.concatenate([self._history, scores])
        self._history = known[n:]
        total = known[:n].copy()
        for offset in range(1, count):
            total += known[offset : offset + n]
        total /= np.float32(count)
        return total

    def _step(self, scores: list[float]) -> Decided | None:
        """One window (labels,)."""
        window = self._window
        self._idle = True
        best = NEVER
        for word in self._words:
            if scores[word] < self._off:
                self._armed[word], self._first[word] = True, NEVER
                continue
            self._idle = False
            if self._first[word] == NEVER:
                self._first[word] = window
            able = self._armed[word] and scores[word] >= self._on[word] and window >= self._ready
            if able and (best == NEVER or scores[word] > scores[best]):
                best = word
        known = self._candidate
        if best != NEVER and (known is None or scores[best] > known.score):
            since = window if known is None else known.window
            score = np.float32(scores[best])
            known = Decided(best, score, self._first[best], window, since)
        if known is not None and window - known.window >= self.decision.patience:
            self._armed[known.label] = scores[known.label] < self._off
            self._ready = window + 1 + self.decision.refractory_windows
            self._candidate, self._idle = None, False
            return replace(known, window=window)
        self._candidate = known
        self._idle = self._idle and known is None
        return None
