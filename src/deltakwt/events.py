"""From one-second windows that each name a word to the words that were said, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deltakwt.audio import HOP_SAMPLES
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE

WINDOW = CLIP_SAMPLES / SAMPLE_RATE  # seconds
HOP = HOP_SAMPLES / SAMPLE_RATE
WORD = 0.5  # seconds: about as long as a word is
# Chosen on recordings put together from Speech Commands clips.
MIN_SCORE = 0.7  # a window below it names no word
MIN_HITS = 4  # a word is heard by several windows; its halves by fewer
MAX_GAP = 2  # windows in a row that may miss the word inside one event


@dataclass(frozen=True)
class Event:
    """A word, its best score, and where in the sound it lies (seconds)."""

    label: str
    score: float
    start: float
    end: float


@dataclass(frozen=True)
class Hit:
    """One window that names a word."""

    window: int  # it starts at window * 0.1 s
    label: str
    score: float


def find_events(hits: Sequence[Hit], windows: int = 2 * MIN_HITS) -> list[Event]:
    """Merge the hits of a sound of so many windows, which are in order of time, into events."""
    fewest = min(MIN_HITS, (windows + 1) // 2)  # a short sound has few windows in all
    found = [
        (sum(hit.score for hit in part), _event(part))
        for label in sorted({hit.label for hit in hits})
        for run in _runs([hit for hit in hits if hit.label == label])
        for part in _words(run)
        if len(part) >= fewest
    ]
    # Where two words claim the same sound (one is often a part of the other), the one heard
    # longer and more surely stays.
    kept: list[Event] = []
    for _, event in sorted(found, key=lambda pair: -pair[0]):
        if not any(_overlap(event, other) > WORD / 2 for other in kept):
            kept.append(event)
    return sorted(kept, key=lambda event: (event.start, event.end))


def _runs(hits: list[Hit]) -> Iterator[list[Hit]]:
    """Hits of one word, cut where more than MAX_GAP windows in a row missed it."""
    run: list[Hit] = []
    for hit in hits:
        if run and hit.window - run[-1].window > MAX_GAP + 1:
            yield run
            run = []
        run.append(hit)
    yield run


def _words(run: list[Hit]) -> Iterator[list[Hit]]:
    """Windows that share no sound cannot hear the same word: cut such a run where it is weakest."""
    if (run[-1].window - run[0].window) * HOP < WINDOW:
        yield run
        return
    weakest = min(range(1, len(run) - 1), key=lambda i: run[i].score, default=1)
    yield from _words(run[:weakest])
    yield from _words(run[weakest:])


def _event(hits: list[Hit]) -> Event:
    """Every window that hears a word holds all of it: the word lies in what they share."""
    first, last = hits[0].window * HOP, hits[-1].window * HOP
    middle = (last + first + WINDOW) / 2
    length = max(first + WINDOW - last, WORD)
    peak = max(hits, key=lambda hit: hit.score)
    start = max(0.0, middle - length / 2)
    return Event(peak.label, peak.score, round(start, 3), round(middle + length / 2, 3))


def _overlap(one: Event, other: Event) -> float:
    return min(one.end, other.end) - max(one.start, other.start)
