"""The decision rule: from the logits of overlapping windows to words.

The rule is small, so that C can give the same words (native/src/decider.c). Numbers are float32
unless said otherwise, `+` is done in the order written. w counts windows from 0; n is `smooth`.

1. Posterior: the runner has added `unknown_bias` to the logit of "_unknown_"; m = max(l);
   e_i = float32(exp(double(l_i - m))); sum = e_0 + e_1 + ...; p_i = e_i/sum.
2. Smoothing: m = (sqrt(p[w-n+1]) + ... + sqrt(p[w])) / n, oldest first; s = m * m. At the start of
   a stream m is over the w + 1 windows that exist. (s counts windows in which it is likely.)
3. A word whose s falls below `off` is armed (again). Labels that begin with "_" are not words.
4. Outside the refractory time, the armed word with the highest s (the first of equals) becomes the
   candidate if it reaches its `on`; a higher one replaces it.
5. `patience` windows after the first candidate, the candidate is the event. It is disarmed, and no
   other event follows within the refractory time.
6. A stream of at most one second is one clip, and its only window decides: if step 5 gave no event,
   the label with the highest s is the event, if it is a word and reaches `off`.

Where the word lies, in samples: a model recognises a word once its middle is in the window, and
smoothing delays that by half of its span. With a window of 16000 samples and a hop of H samples,
the middle is at max(4000, first * H + 16000 - (n - 1) * H / 2), where `first` is the window since
which s is at `off` or above. The word is taken to be 8000 samples long, but it does not end after
the sound that was needed to decide it. A word that is there in window 0 lies anywhere in it: 0 to
16000. When the stream has ended, no time lies after its end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.config import CLIP_SAMPLES, FRAMES, HOP_SAMPLES, SAMPLE_RATE, UNKNOWN
from deltakwt.core.errors import DeltakwtError

FRAMES_PER_SECOND = SAMPLE_RATE // HOP_SAMPLES
NEVER = -1
POSSIBLE_WORD = 0.15  # posterior from which a window may hold a word
MOST_SPAN = 4  # while no word is possible, one window of so many is computed
WORD_SAMPLES = SAMPLE_RATE // 2  # the length that a word is taken to have


@dataclass(frozen=True)
class Event:
    """A word in a sound. Times are seconds since the first sample."""

    label: str
    score: float  # smoothed posterior of the best window, 0 to 1
    start: float
    end: float
    time: float  # seconds of sound that were needed to decide
    window: float  # start of the best window

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """The settings of the decision rule; a model has its own in its config.json, "decision"."""

    hop: float = 0.1  # seconds from one window to the next, whole frames of the model
    # A window is not computed if no feature differs by more than `reuse` from the last computed
    # one (0: equal windows only). While no word reaches POSSIBLE_WORD, only the newest
    # `compare_seconds` are compared, and up to `max_outliers` features may differ by more.
    reuse: float = 3.0
    compare_seconds: float = 0.35
    max_outliers: int = 2
    smooth: int = 3  # number of windows whose posteriors are averaged, step 2
    on: float = 0.8  # smoothed posterior at which a word becomes a candidate
    off: float = 0.4  # smoothed posterior below which a word has ended
    patience: int = 1  # windows to wait after the first candidate for a better one
    refractory: float = 1.0  # seconds after an event without another one
    unknown_bias: float = 0.0  # added to the logit of "_unknown_": it is likelier than in clips
    words: Mapping[str, float] = field(default_factory=dict)  # `on` of single words

    def __post_init__(self) -> None:
        for one in fields(self):
            if not _has_type(one.name, value := getattr(self, one.name)):
                raise DeltakwtError(f"decision: {one.name} = {value!r} has the wrong type")
        has_frames = 0.01 <= self.hop <= 1 and abs(self.hop * 100 - round(self.hop * 100)) < 1e-6
        checks = {
            "hop": (has_frames, "0.01 to 1 second, a multiple of 0.01"),
            "reuse": (0 <= self.reuse < float("inf"), "0 (exact) or a positive number"),
            "compare_seconds": (0.01 <= self.compare_seconds <= 1, "0.01 to 1 second"),
            "max_outliers": (0 <= self.max_outliers <= 10_000, "0 to 10000 features"),
            "smooth": (1 <= self.smooth <= 100, "1 to 100 windows"),
            "on": (0 < self.on <= 1, "above 0 and at most 1"),
            "off": (0 < self.off <= self.on, "above 0 and at most `on`"),
            "patience": (0 <= self.patience <= 100, "0 to 100 windows"),
            "refractory": (0 <= self.refractory <= 60, "0 to 60 seconds"),
            "unknown_bias": (-20 <= self.unknown_bias <= 20, "-20 to 20"),
            "words": (all(0 < on <= 1 for on in self.words.values()), "above 0 and at most 1 each"),
        }
        for name, (good, allowed) in checks.items():
            if not good:
                raise DeltakwtError(
                    f"decision: {name} = {getattr(self, name)!r}: must be {allowed}"
                )

    @property
    def hop_frames(self) -> int:
        return round(self.hop * FRAMES_PER_SECOND)

    @property
    def compare_frames(self) -> int:
        """The newest frames of 10 ms to compare: at least a hop; all if reuse is exact."""
        wanted = max(round(self.compare_seconds * FRAMES_PER_SECOND), self.hop_frames)
        return min(wanted, FRAMES) if self.reuse else FRAMES

    def rows(self, stride: int) -> tuple[int, int]:
        """Return the hop, and the newest frames to compare, in frames of a model of this stride."""
        if self.hop_frames % stride:
            step = f"{stride / FRAMES_PER_SECOND:g} for a model with a stride of {stride}"
            raise DeltakwtError(f"decision: hop = {self.hop!r}: must be a multiple of {step}")
        return self.hop_frames // stride, -(-self.compare_frames // stride)

    @property
    def outliers_allowed(self) -> int:
        return self.max_outliers if self.reuse else 0

    @property
    def refractory_windows(self) -> int:
        """The number of windows after an event that cannot give another one, rounded."""
        return round(self.refractory * FRAMES_PER_SECOND / self.hop_frames)

    def thresholds(self, labels: Sequence[str]) -> NDArray[np.float32]:
        """Return (labels,): `on` of every word, and 2, which no score reaches, of other labels."""
        return np.array(
            [2 if label.startswith("_") else self.words.get(label, self.on) for label in labels],
            np.float32,
        )

    def biases(self, labels: Sequence[str]) -> NDArray[np.float32]:
        """Return (labels,): what is added to the logits of every window."""
        return np.array([self.unknown_bias * (label == UNKNOWN) for label in labels], np.float32)

    def span(self, labels: Sequence[str]) -> int:
        """Return n if one window of n is enough while no word is possible; 0: all are computed.

        A word is possible from a posterior of POSSIBLE_WORD on. An event needs that in at least
        `fewest` windows, so if no more than these wait, nothing is decided later.
        """
        least, low = (float(p) ** 0.5 for p in (self.thresholds(labels).min(), POSSIBLE_WORD))
        fewest = math.ceil(self.smooth * (least - low) / (1 - low) - 1e-4)
        span = min(MOST_SPAN, fewest)
        fits = span >= max(2, self.patience) and (span - 1) * self.hop_frames <= FRAMES
        return span if fits else 0

    def at(self, on: float) -> Decision:
        """Return the same settings with `on` for all words, and `off` at most `on`."""
        return replace(self, on=on, off=min(self.off, on), words={})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "decision") -> Decision:
        """Read the settings of a config.json. A key that is left out has its default."""
        kinds = [one.name for one in fields(cls)]
        if not isinstance(data, Mapping) or (unknown := set(data) - set(kinds)):
            is_object = isinstance(data, Mapping)
            problem = f"unknown key {min(unknown)!r}" if is_object else "is not an object"
            raise DeltakwtError(f"{where}: {problem}; keys are {', '.join(kinds)}")
        try:
            return cls(**data)
        except DeltakwtError as error:
            raise DeltakwtError(f"{where}{str(error).removeprefix('decision')}") from None


_WHOLE = {"max_outliers", "smooth", "patience"}


def _has_type(name: str, value: object) -> bool:
    if name == "words":
        return isinstance(value, Mapping) and all(_has_type("on", on) for on in value.values())
    return isinstance(value, Integral if name in _WHOLE else Real) and not isinstance(value, bool)


def posteriors(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (n, labels), step 1."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers: NDArray[np.float32] = np.exp(shifted.astype(np.float64)).astype(np.float32)
    powers /= powers.cumsum(axis=1)[:, -1:]  # cumsum adds from left to right, as C does
    return powers


def smoothed(
    before: NDArray[np.float32], roots: NDArray[np.float32], seen: int
) -> NDArray[np.float32]:
    """Return (n, labels), step 2: the power mean of each window and the len(before) before it.

    `roots` are square roots of posteriors. `before` holds those of the windows before, and zeros
    before the first window; `seen` windows came before these.
    """
    span, n = len(before) + 1, len(roots)
    known = np.concatenate([before, roots])
    total = known[:n].copy()
    for offset in range(1, span):
        total += known[offset : offset + n]
    counts = np.arange(seen + 1, seen + 1 + n).clip(max=span)
    total /= counts.astype(np.float32)[:, None]
    total *= total
    return total


@dataclass(frozen=True)
class WindowEvent:
    """An event counted in windows; `Event` has it in seconds."""

    label: int
    score: np.float32  # smoothed posterior of the best window
    first: int  # window since which the word is at `off` or above
    peak: int  # the best window
    window: int  # the window that decided

    def event(
        self,
        labels: Sequence[str],
        decision: Decision,
        delay: int = 0,
        samples: int | None = None,
    ) -> Event:
        """Return the event in seconds.

        `delay` is the number of samples after a window that the front end needs. `samples` is the
        length of a sound that has ended.
        """
        hop = decision.hop_frames * HOP_SAMPLES
        half = WORD_SAMPLES // 2
        time = self.window * hop + CLIP_SAMPLES + delay
        if self.first == 0:
            start, end = 0, CLIP_SAMPLES
        else:
            late = (decision.smooth - 1) * hop // 2
            middle = max(half, self.first * hop + CLIP_SAMPLES - late)
            start, end = middle - half, min(middle + half, time)
        peak = self.peak * hop
        if samples is not None:
            start = min(start, max(0, samples - WORD_SAMPLES))
            end, time, peak = min(end, samples), min(time, samples), min(peak, samples)
        seconds = (at / SAMPLE_RATE for at in (start, end, time, peak))
        return Event(labels[self.label], round(float(self.score), 6), *seconds)


class Decider:
    """The state of the decision rule. Windows are pushed in order, any number at a time."""

    def __init__(self, decision: Decision, labels: Sequence[str]) -> None:
        self.decision = decision
        self._words = [i for i, label in enumerate(labels) if not label.startswith("_")]
        self._on = [float(on) for on in decision.thresholds(labels)]
        self._off = np.float32(decision.off)
        self._before = np.zeros((decision.smooth - 1, len(labels)), np.float32)
        self._last: list[float] = []  # the smoothed posteriors of the newest window
        self._window = 0  # number of the next window
        self._armed = [True] * len(labels)
        self._first = [NEVER] * len(labels)  # since which window a word is at `off` or above
        self._candidate: WindowEvent | None = None  # `window`: of the first candidate
        self.ready = 0  # the window at which the refractory time is over
        self._idle = True  # whether a window without a word changes nothing
        self._equal = 0  # number of newest windows that are equal to each other

    @property
    def is_still(self) -> bool:
        """Whether no word is near and all windows that are averaged were equal."""
        return self._idle and self._equal >= self.decision.smooth

    def push(self, logits: NDArray[np.float32], is_same: bool = False) -> list[WindowEvent]:
        """Take the (n, labels) logits of the next windows and return the events they complete.

        `is_same` says that every row equals the row pushed last. Once all averaged windows are
        equal, another equal one changes nothing and is only counted.
        """
        if is_same and self.is_still:
            self._window += len(logits)
            return []
        if not len(logits):
            return []
        roots = np.sqrt(posteriors(logits))
        means = smoothed(self._before, roots, self._window)
        self._before = np.concatenate([self._before, roots])[len(roots) :]
        equal = self._equal + len(logits) if is_same else 0
        events = self.push_smoothed(means)
        loud = (means[:, self._words] >= self._off).any()
        self._equal = 0 if loud else equal
        return events

    def push_smoothed(self, means: NDArray[np.float32]) -> list[WindowEvent]:
        """Take the smoothed posteriors (n, labels) of the next windows: steps 3 to 5."""
        base, n = self._window, len(means)
        loud = np.flatnonzero((means[:, self._words] >= self._off).any(axis=1)).tolist()
        events, at = [], 0
        for stop in (*loud, n):  # a window without a word matters only while not idle
            while at < stop and not self._idle:
                events += self._step(base + at, means[at].tolist())
                at += 1
            if stop < n:
                events += self._step(base + stop, means[stop].tolist())
                at = stop + 1
        self._window = base + n
        if n:
            self._last = means[-1].tolist()
        return events

    def end_of_clip(self) -> WindowEvent | None:
        """Return the event of a stream of one window, step 6, if there was none yet."""
        best = max(range(len(self._last)), key=self._last.__getitem__)
        score = np.float32(self._last[best])
        if self.ready or best not in self._words or score < self._off:
            return None
        return WindowEvent(best, score, 0, 0, 0)

    def _step(self, window: int, scores: list[float]) -> list[WindowEvent]:
        """Decide on one window: at most one event."""
        off = float(self._off)
        self._idle = True
        best = NEVER
        for word in self._words:
            if scores[word] < off:
                self._armed[word], self._first[word] = True, NEVER
                continue
            self._idle = False
            if self._first[word] == NEVER:
                self._first[word] = window
            able = self._armed[word] and scores[word] >= self._on[word] and window >= self.ready
            if able and (best == NEVER or scores[word] > scores[best]):
                best = word
        known = self._candidate
        if best != NEVER and (known is None or scores[best] > known.score):
            since = window if known is None else known.window
            known = WindowEvent(best, np.float32(scores[best]), self._first[best], window, since)
        if known is not None and window - known.window >= self.decision.patience:
            self._armed[known.label] = scores[known.label] < off
            self.ready = window + 1 + self.decision.refractory_windows
            self._candidate, self._idle = None, False
            return [replace(known, window=window)]
        self._candidate = known
        self._idle = self._idle and known is None
        return []


def smooth_stream(logits: NDArray[np.float32], smooth: int) -> NDArray[np.float32]:
    """Return the smoothed posteriors (n, labels) of a whole stream: steps 1 and 2."""
    before = np.zeros((smooth - 1, logits.shape[1]), np.float32)
    return smoothed(before, np.sqrt(posteriors(logits)), 0)
