"""`--save-events DIR`: the sound around each event, kept for `deltakwt review`.

A folder of WAV files and `events.jsonl`, one line an event, appended, so that many runs can share
a folder and a run that is killed loses at most the event whose sound had not ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.spotter import Detection, Spotter

INDEX = "events.jsonl"
MARGIN = SAMPLE_RATE // 2  # samples before and after the window in which the word was heard
MAX_INDEX_BYTES = 256 << 20


class Album:
    """Writes the events of one run."""

    def __init__(self, folder: Path, spotter: Spotter, facts: Mapping[str, str]) -> None:
        self.folder, self.spotter, self.facts = folder, spotter, dict(facts)
        self.saved = 0
        self._run = time.strftime("%Y%m%dT%H%M%S")
        self._waiting: list[Detection] = []  # their sound has not ended yet
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INDEX).open("a").close()
        except OSError as error:
            raise DeltakwtError(f"{folder}: cannot be written: {error.strerror}") from error

    def add(self, event: Detection) -> None:
        self._waiting.append(event)

    def update(self, ended: bool = False) -> None:
        """After each block: write the events whose sound is complete (all, at the end)."""
        now = round(self.spotter.seconds * SAMPLE_RATE)
        later = []
        for event in self._waiting:
            if ended or _end(event) <= now:
                self._write(event, min(_end(event), now))
            else:
                later.append(event)
        self._waiting = later

    def _write(self, event: Detection, end: int) -> None:
        import soundfile

        start = _end(event) - CLIP_SAMPLES - 2 * MARGIN
        sound = np.clip(self.spotter.sound(start, end), -1, 1)
        self.saved += 1
        name = _free(self.folder, f"{self._run}-{self.saved:04d}-{event.label}")
        line = {"file": name, **event.to_json(), "clip": MARGIN / SAMPLE_RATE, **self.facts}
        try:
            soundfile.write(str(self.folder / name), sound, SAMPLE_RATE, subtype="PCM_16")
            with (self.folder / INDEX).open("a", encoding="utf-8") as index:
                index.write(json.dumps(line) + "\n")
        except (OSError, soundfile.LibsndfileError) as error:
            raise DeltakwtError(f"{self.folder / name}: cannot be written: {error}") from error


def _end(event: Detection) -> int:
    return round(event.window * SAMPLE_RATE) + CLIP_SAMPLES + MARGIN


def _free(folder: Path, stem: str) -> str:
    """A name that no other run of the same second has taken."""
    number = 0
    while (folder / (name := f"{stem}{f'-{number}' if number else ''}.wav")).exists():
        number += 1
    return name


@dataclass(frozen=True)
class Saved:
    """One event of an album."""

    file: str
    label: str
    score: float
    clip: float  # seconds into the file where the window begins
    line: dict[str, Any]


def read_album(folder: Path) -> list[Saved]:
    """The events in a folder, in the order in which they were heard."""
    index = folder / INDEX
    if not index.is_file():
        raise DeltakwtError(f"{folder}: has no {INDEX}; fill it by: listen --save-events")
    if index.stat().st_size > MAX_INDEX_BYTES:
        raise DeltakwtError(f"{index}: too large")
    saved = []
    for number, text in enumerate(index.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            one = Saved(
                str(line["file"]), str(line["label"]), float(line["score"]), line["clip"], line
            )
            if Path(one.file).name != one.file:
                raise ValueError("a path that leads elsewhere")
        except (ValueError, KeyError, TypeError) as error:
            raise DeltakwtError(f"{index}: line {number} is not an event: {error}") from None
        saved.append(one)
    return saved
