"""The words in one sound of any length."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deltakwt.audio import Audio, Sound, blocks, windows
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.macs import Macs
from deltakwt.core.model import Model, softmax
from deltakwt.core.setting import SettingLike
from deltakwt.evaluate.tally import Tally
from deltakwt.events import HOP, MIN_SCORE, Event, Hit, find_events


@dataclass(frozen=True)
class Spotting:
    """The words in a sound of any length."""

    file: str | None
    events: list[Event]
    ms: float  # of computing, without decoding the file
    seconds: float = 0.0  # length of the sound
    windows: int = 0
    tally: Tally | None = field(default=None, repr=False)  # counts over the windows

    @property
    def macs(self) -> Macs | None:
        """Mean over the windows, with thresholds."""
        return None if self.tally is None else self.tally.macs


def spot(
    model: Model,
    sound: Sound,
    sample_rate: int | None = None,
    *,
    setting: SettingLike | None = None,
    threads: int = 0,
    progress: Callable[[float], None] = lambda seconds: None,
) -> Spotting:
    """Find the words in a sound of any length, which is streamed, never held whole."""
    chosen = model.setting_of(setting)
    stream = _Counted(blocks(sound, sample_rate))
    tally = Tally(model.config)
    hits: list[Hit] = []
    heard, spent = 0, 0.0
    for _, clips in windows(stream):
        start = time.perf_counter()
        batch = model.engine.batch(clips, chosen, threads=threads)
        spent += time.perf_counter() - start
        hits += _hits(model, heard, batch.logits)
        heard += len(clips)
        tally.add(batch.macs, batch.nonzeros)
        progress(heard * HOP)
    seconds = stream.samples / SAMPLE_RATE
    if heard == 1:
        events = [Event(hit.label, hit.score, 0.0, round(seconds, 3)) for hit in hits]
    else:
        events = find_events([hit for hit in hits if hit.score >= MIN_SCORE], heard)
    return Spotting(
        os.fspath(sound) if isinstance(sound, str | os.PathLike) else None,
        events,
        1e3 * spent,
        seconds,
        heard,
        tally,
    )


def _hits(model: Model, first: int, logits: NDArray[np.float32]) -> list[Hit]:
    """Windows whose best label is a word: neither silence nor unknown."""
    scores = softmax(logits)  # (n, labels)
    best = scores.argmax(axis=1)
    return [
        Hit(first + i, model.labels[label], float(scores[i, label]))
        for i, label in enumerate(best)
        if not model.labels[label].startswith("_")
    ]


class _Counted:
    """A stream of blocks that counts the samples that went by."""

    def __init__(self, stream: Iterator[Audio]) -> None:
        self.stream, self.samples = stream, 0

    def __iter__(self) -> Iterator[Audio]:
        for block in self.stream:
            self.samples += len(block)
            yield block
