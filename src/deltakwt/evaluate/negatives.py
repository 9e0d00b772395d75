"""Sound without keywords: hours of speech, music or noise, to count false accepts.

All sound files below a folder are joined to one stream, in sorted order. Transcripts in the form of
LibriSpeech (`*.trans.txt`, lines "ID WORDS...", where ID is the name of a sound file without its
suffix) are read if there are any: an event whose word stands in the transcript of its file may be
right, so it is ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltakwt.audio import SOUND_SUFFIXES, Audio, duration, read_blocks
from deltakwt.core.config import CLIP_SAMPLES, SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.decision import Event

BLOCK = 10 * SAMPLE_RATE
MAX_TRANSCRIPT_BYTES = 64 << 20


@dataclass(frozen=True)
class FalseAccepts:
    """The events on keyword-free sound."""

    hours: float
    words: Counter[str]
    ignored: int = 0  # events whose word is in the transcript

    @property
    def per_hour(self) -> float:
        return self.words.total() / self.hours if self.hours else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "hours": round(self.hours, 4),
            "false_accepts": self.words.total(),
            "false_accepts_per_hour": round(self.per_hour, 3),
            "ignored": self.ignored,
            "words": dict(self.words.most_common()),
        }


def pooled(parts: Iterable[FalseAccepts]) -> FalseAccepts:
    """Return the sum over several folders."""
    listed = list(parts)
    words = sum((part.words for part in listed), Counter[str]())
    hours = sum(part.hours for part in listed)
    return FalseAccepts(hours, words, sum(part.ignored for part in listed))


@dataclass
class NegativeStream:
    """The sound files below a folder as one stream."""

    folder: Path
    files: list[Path]
    transcripts: dict[str, frozenset[str]]  # file name without suffix -> its words
    failed: list[str] = field(default_factory=list)  # why files were left out
    _starts: list[int] = field(default_factory=list)  # first sample of each file that was read
    _words: list[frozenset[str]] = field(default_factory=list)  # the transcript of each
    samples: int = 0  # streamed so far

    @property
    def hours(self) -> float:
        return self.samples / SAMPLE_RATE / 3600

    @property
    def expected_seconds(self) -> float:
        """The length that the headers of the files give, for progress."""
        return sum(duration(file) or 0.0 for file in self.files)

    def blocks(self) -> Iterator[Audio]:
        """Yield the sound, at most 10 s at a time. A file that cannot be read is left out."""
        self.samples = 0
        for known in (self.failed, self._starts, self._words):
            known.clear()
        for file in self.files:
            self._starts.append(self.samples)
            self._words.append(self.transcripts.get(file.stem, frozenset()))
            try:
                for part in read_blocks(file):
                    for start in range(0, len(part), BLOCK):
                        block = part[start : start + BLOCK]
                        self.samples += len(block)
                        yield block
            except DeltakwtError as error:
                self.failed.append(str(error))
        if not self.samples:
            raise DeltakwtError(f"{self.folder}: no file could be read: {self.failed[0]}")

    def false_accepts(self, events: Sequence[Event]) -> FalseAccepts:
        """Count the events of the whole stream."""
        words: Counter[str] = Counter()
        ignored = 0
        for event in events:
            if event.label in self._spoken_near(event):
                ignored += 1
            else:
                words[event.label] += 1
        return FalseAccepts(self.hours, words, ignored)

    def _spoken_near(self, event: Event) -> frozenset[str]:
        """Return the transcript words of the files that the event's best window overlaps."""
        start = round(event.window * SAMPLE_RATE)
        first = max(0, bisect_right(self._starts, start) - 1)
        last = max(0, bisect_right(self._starts, start + CLIP_SAMPLES - 1) - 1)
        return frozenset().union(*self._words[first : last + 1])


def find_negatives(folder: Path) -> NegativeStream:
    """Return the sound files and transcripts below a folder."""
    if not folder.is_dir():
        raise DeltakwtError(f"--negatives {folder}: no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [path for path in paths if path.suffix.lower() in SOUND_SUFFIXES]
    if not files:
        raise DeltakwtError(f"--negatives {folder}: has no sound files")
    transcripts: dict[str, frozenset[str]] = {}
    for path in paths:
        if path.name.endswith(".trans.txt"):
            transcripts |= _read_transcript(path)
    return NegativeStream(folder, files, transcripts)


def _read_transcript(path: Path) -> dict[str, frozenset[str]]:
    if path.stat().st_size > MAX_TRANSCRIPT_BYTES:
        raise DeltakwtError(f"{path}: larger than {MAX_TRANSCRIPT_BYTES >> 20} MiB")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeltakwtError(f"{path}: not readable as text: {error}") from None
    found = {}
    for line in lines:
        name, _, words = line.strip().partition(" ")
        if name:
            found[name] = frozenset(words.lower().split())
    return found
