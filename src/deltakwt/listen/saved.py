"""`listen --save-events DIR`: the sound around each event, for `deltakwt review`.

The folder holds WAV files and `events.jsonl` with one line per event. Lines are appended, so many
runs can share a folder, and a run that is killed loses at most the events whose sound has not ended
yet. A WAV file without its line is never left behind, not even if the disk is full.
"""

from __future__ import annotations

import errno
import io
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE, SILENCE, UNKNOWN
from deltakwt.core.errors import DeltakwtError
from deltakwt.files import read_json_lines, write_atomically, writing
from deltakwt.listen.decision import Event
from deltakwt.listen.spotter import Spotter
from deltakwt.locks import signals_deferred

INDEX = "events.jsonl"
MARGIN = SAMPLE_RATE // 2  # samples before and after the best window
MAX_BYTES = 256 << 20  # of events.jsonl and of the answers of a review
MAX_LABEL = 64  # characters
MAX_SECONDS = 1e9  # thirty years


class EventWriter:
    """Writes the events of one run. `facts` is added to every line."""

    def __init__(self, folder: Path, spotter: Spotter, facts: Mapping[str, str]) -> None:
        self.folder, self.spotter, self.facts = folder, spotter, dict(facts)
        self.count = 0
        # The process number is part of it: two runs may begin in the same second.
        self._run = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        self._waiting: list[Event] = []  # events whose sound has not ended yet
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INDEX).open("a").close()

    def add(self, event: Event) -> None:
        self._waiting.append(event)

    def update(self, has_ended: bool = False) -> None:
        """Write the events whose sound is complete, or all of them at the end of the stream."""
        now = round(self.spotter.seconds * SAMPLE_RATE)
        for event in list(self._waiting):
            if has_ended or _end(event) <= now:
                with signals_deferred():  # sound and line are written and counted, or neither
                    self._waiting.remove(event)
                    self._write(event, min(_end(event), now))

    def _write(self, event: Event, end: int) -> None:
        import soundfile

        start = _end(event) - CLIP_SAMPLES - 2 * MARGIN
        sound = np.clip(self.spotter.sound(start, end), -1, 1)
        self.count += 1
        label = event.label if is_plain_label(event.label) else "word"
        name = _free_name(self.folder, f"{self._run}-{self.count:04d}-{label}")
        line = {"file": name, **event.to_json(), "clip": MARGIN / SAMPLE_RATE, **self.facts}
        path = self.folder / name
        content = io.BytesIO()
        soundfile.write(content, sound, SAMPLE_RATE, format="WAV", subtype="PCM_16")
        try:
            write_atomically(path, content.getvalue())
            append_line(self.folder / INDEX, json.dumps(line) + "\n")
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise DeltakwtError(f"{path}: cannot be written: {error.strerror}") from error
            raise


def append_line(path: Path, text: str) -> None:
    """Append a line, whole or not at all."""
    data = text.encode()
    with path.open("ab", buffering=0) as file:  # a buffer would be written again when it is closed
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.truncate(path, before)
            raise


def _end(event: Event) -> int:
    """Return the sample at which the saved sound of an event ends."""
    return round(event.window * SAMPLE_RATE) + CLIP_SAMPLES + MARGIN


def _free_name(folder: Path, stem: str) -> str:
    """Return a name that no other run of the same second has taken."""
    number = 0
    while (folder / (name := f"{stem}{f'-{number}' if number else ''}.wav")).exists():
        number += 1
    return name


@dataclass(frozen=True)
class SavedEvent:
    """One line of events.jsonl."""

    file: str
    label: str
    score: float
    start: float  # seconds since the start of its stream
    clip: float  # seconds into the file where the best window begins
    line: dict[str, Any]


def read_saved(folder: Path) -> list[SavedEvent]:
    """Return the events saved in a folder, in the order in which they were found."""
    index = folder / INDEX
    if not index.is_file():
        raise DeltakwtError(f"{folder}: has no {INDEX}; fill it with: listen --save-events")
    for number, line in read_json_lines(index, MAX_BYTES):  # a bad file takes no memory
        _saved_event(index, number, line)
    return [_saved_event(index, number, line) for number, line in read_json_lines(index, MAX_BYTES)]


def _saved_event(index: Path, number: int, line: dict[str, Any]) -> SavedEvent:
    try:
        file, label = line["file"], line["label"]
        numbers = [float(line[key]) for key in ("score", "clip")] + [float(line.get("start", 0))]
        if not _is_name(file):
            raise ValueError("file must be a name without a folder")
        if not is_plain_label(label):
            raise ValueError("label must be a word of letters and digits")
        if not all(abs(number) <= MAX_SECONDS for number in numbers):  # false for NaN
            raise ValueError(f"score, clip and start must be numbers up to {MAX_SECONDS:g}")
    except KeyError as error:
        raise DeltakwtError(f"{index}: line {number} is not an event: no {error}") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise DeltakwtError(f"{index}: line {number} is not an event: {error}") from None
    score, clip, start = numbers
    return SavedEvent(file, label, score, start, clip, line)


def _is_name(file: object) -> bool:
    if not isinstance(file, str) or file in ("", "..") or "\0" in file:
        return False
    return Path(file).name == file


def is_plain_label(label: object) -> bool:
    """Return whether a label is safe as the name of a folder."""
    if not isinstance(label, str) or len(label) > MAX_LABEL:
        return False
    plain = not label.startswith("_") and label.replace("-", "").replace("_", "").isalnum()
    return plain or label in (SILENCE, UNKNOWN)
