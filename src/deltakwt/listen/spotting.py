"""The words in one sound: a file or an array of any length, streamed through a `Spotter`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from deltakwt.audio import Sound, blocks
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.model import Model
from deltakwt.core.setting import SettingLike
from deltakwt.listen.decision import Decision, Event
from deltakwt.listen.spotter import Spotter

BLOCK = 10 * SAMPLE_RATE  # samples between two calls of `progress`


@dataclass(frozen=True)
class Spotting:
    """The words in a sound of any length, and what finding them cost."""

    file: str | None
    events: list[Event]
    ms: float  # processor time, without decoding the file
    seconds: float  # length of the sound
    windows: int
    reused: int  # windows that were not computed, because they were close to an earlier one
    macs_percent: float  # of running the dense model on every window
    macs_per_second: float  # of sound


def spot(
    model: Model,
    sound: Sound,
    sample_rate: int | None = None,
    *,
    setting: SettingLike | None = None,
    decision: Decision | None = None,
    progress: Callable[[float], None] = lambda seconds: None,
) -> Spotting:
    """Find the words in a sound of any length. It is streamed, never held in memory whole.

    The words and their times are those that a `Spotter` finds, which is what it uses.
    """
    spotter = Spotter(model, setting=setting, decision=decision)
    events: list[Event] = []
    for part in blocks(sound, sample_rate):
        for start in range(0, len(part), BLOCK):
            events += spotter.push(part[start : start + BLOCK])
            progress(spotter.seconds)
    events += spotter.flush()
    used, seconds = spotter.meter.total, spotter.seconds
    return Spotting(
        os.fspath(sound) if isinstance(sound, str | os.PathLike) else None,
        events,
        1e3 * used.cpu,
        seconds,
        used.windows,
        used.windows - used.computed,
        spotter.meter.ever.macs_percent,
        used.macs / seconds,
    )
