"""One run of `deltakwt listen`: sound goes from a source to a spotter, events go to the outputs.

The live view on a terminal is a few lines of text, redrawn in place. It uses plain control
sequences instead of a terminal library, because drawing four times per second must cost less than
the keyword spotting itself.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.decision import Event
from deltakwt.listen.hooks import Hooks
from deltakwt.listen.pcm import BadBlock, SourceLost
from deltakwt.listen.runner import Meter, Reading
from deltakwt.listen.saved import EventWriter
from deltakwt.listen.sources import Block
from deltakwt.listen.spotter import Spotter
from deltakwt.logs import log, notify, watchdog_seconds
from deltakwt.text import one_line, printable, wall_time

REDRAW_SECONDS = 0.25
MIN_LEVEL = -80.0  # dB, the left end of the level bar
WORDS_SHOWN = 5  # newest words on the screen
MAX_BAR = 60  # columns
NARROW = 60  # below this many columns the last column is left out


def level(block: NDArray[np.floating]) -> float:
    """Return the level (RMS) of a block in dB of full scale."""
    if not block.size:
        return MIN_LEVEL
    power = float(np.mean(np.square(block, dtype=np.float64)))
    return max(MIN_LEVEL, 10 * math.log10(power + 1e-12))


def clock(seconds: float) -> str:
    """Return '1:02:03' for 3723.4."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class View:
    """Draws the level, the meter and the newest words; `lines` returns the text alone."""

    def __init__(
        self,
        out: TextIO,
        title: str,
        meter: Meter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out, self._meter, self._now = out, meter, now
        self._title = printable(title)  # the name of a file
        self._words: deque[str] = deque(maxlen=WORDS_SHOWN)
        self._count = 0
        self._text = ""  # the newest message
        self._level = MIN_LEVEL
        self._drawn = 0  # lines on the screen
        self._next = 0.0
        encoding = (getattr(out, "encoding", None) or "ascii").lower()
        self._full, self._empty = ("█", "░") if "utf" in encoding else ("#", ".")

    def block(self, block: NDArray[np.floating]) -> None:
        """Take the next block for the level, and redraw if it is time to."""
        if self._now() >= self._next:
            self._level = level(block)
            self.draw()

    def word(self, event: Event) -> None:
        self._count += 1
        at = f"{clock(event.start)}.{int(event.start * 10) % 10}"
        self._words.append(f"{at}  {event.label:<10.10} {event.score:.2f}")
        self._next = 0.0

    def message(self, message: str) -> None:
        self._text = message
        self._next = 0.0

    def draw(self) -> None:
        """Draw over what was drawn before."""
        size = shutil.get_terminal_size()
        width = max(20, _columns(self._out) or size.columns)
        lines = [line[: width - 1] for line in self.lines(width)]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        self._out.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._drawn = len(lines)
        self._next = self._now() + REDRAW_SECONDS

    def lines(self, width: int) -> list[str]:
        """Return the lines for a terminal of that width."""
        narrow = width < NARROW
        meter = self._meter
        time_ = clock(meter.ever.seconds)
        title = self._title[: max(0, width - len(time_) - 3)]
        shown = [f"{title:<{min(width, MAX_BAR + 26) - len(time_) - 2}} {time_}", self._bar(width)]
        head = f"{'':<8}{'MACs':>8}{'M/s':>8}{'CPU':>8}"
        shown.append(head if narrow else head + f"{'reused':>9}")
        spans = (("now", meter.now), ("minute", meter.minute), ("start", meter.ever))
        shown += [_row(name, reading, narrow) for name, reading in spans]
        shown.append(f"words: {self._count}" + ("" if self._count else " (none yet)"))
        shown += [f"  {word}" for word in self._words]
        if self._text:
            shown.append(f"! {self._text}")
        return shown

    def _bar(self, width: int) -> str:
        cells = min(MAX_BAR, width - 20)
        full = round(cells * (1 - self._level / MIN_LEVEL))
        return f"level   {self._full * full}{self._empty * (cells - full)} {self._level:4.0f} dB"


def _row(name: str, reading: Reading, narrow: bool) -> str:
    row = (
        f"{name:<8}{reading.macs_percent:>7.2f}%{reading.macs_per_second / 1e6:>8.1f}"
        f"{reading.cpu_percent:>7.2f}%"
    )
    return row if narrow else row + f"{reading.reused_percent:>8.1f}%"


def _columns(out: TextIO) -> int:
    """Return the width of the terminal that is drawn on, 0 if it is none."""
    try:
        return os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):
        return 0


class Watchdog:
    """Tells systemd that sound comes and is processed: at first, then twice per watchdog time."""

    def __init__(self) -> None:
        self._every = watchdog_seconds()
        self._next = 0.0

    def notify(self) -> None:
        if self._next == 0.0:
            notify("READY=1")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + (self._every or math.inf) / 2
            if self._every:
                notify("WATCHDOG=1")


@dataclass
class Session:
    """The outputs of a run: a live view, JSON lines or plain lines, hooks and saved events."""

    spotter: Spotter
    out: TextIO = field(default_factory=lambda: sys.stdout)
    as_json: bool = False
    view: View | None = None
    hooks: Hooks | None = None
    saved: EventWriter | None = None
    is_logged: bool = False  # words and messages are log lines, instead of plain lines
    reload: Callable[[], None] | None = None  # reads the model and its settings again
    reload_wanted: bool = False  # set by a signal
    rejected: int = 0  # blocks that were not sound
    events: int = 0

    def run(self, blocks: Iterable[Block]) -> None:
        """Run until the source ends, Ctrl-C, or the reader of the output goes away.

        A source that is lost raises `SourceLost` after everything was reported.
        """
        is_complete, lost = False, None
        watchdog = Watchdog()
        try:
            try:
                for block, rate in blocks:
                    watchdog.notify()
                    if self.reload_wanted:
                        self._reload()
                    self._take(block, rate)
            except SourceLost as error:
                lost = error
            self._report(self.spotter.flush())
            is_complete = True
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:
            # What is still buffered must not fail again when Python closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())
        finally:
            notify("STOPPING=1")
            self.spotter.stop()
            if self.hooks:
                self.hooks.close(kill=not is_complete)
            if self.saved:
                self.saved.update(has_ended=True)
        self._end()
        if lost is not None:
            raise lost

    def message(self, text: str) -> None:
        """Report what is not a word: a lost microphone, a failed hook, a bad block."""
        text = one_line(text)  # names of devices, files and models
        if self.is_logged:
            log(text, level="warning")
        if self.as_json:
            self._line({"event": "message", "message": text})
        elif self.view:
            self.view.message(text)
        elif not self.is_logged:
            print(f"deltakwt: {text}", file=sys.stderr)

    def _take(self, block: NDArray[np.floating], rate: int) -> None:
        try:
            events = self.spotter.push(block, rate)
        except BadBlock as error:
            self.rejected += 1
            self.message(str(error))
            # Zeros take the place of the block, so that later times stay right.
            events = self.spotter.push(np.zeros(len(block), np.float32), rate)
        self._report(events)
        if self.view:
            self.view.block(block)
        if self.saved:
            self.saved.update()

    def _report(self, events: list[Event]) -> None:
        if self.saved:  # first, so that what is reported is saved, whenever a signal comes
            for event in events:
                self.saved.add(event)
        for event in events:
            self.events += 1
            if self.is_logged:
                log("word", **event.to_json())
            if self.as_json:
                self._line({"event": "word", **event.to_json(), "wall_time": wall_time()})
            elif self.view:
                self.view.word(event)
            elif not self.is_logged:
                text = f"{event.start:10.2f} {event.end:10.2f}  {event.label:<12}{event.score:.3f}"
                print(text, file=self.out, flush=True)
            if self.hooks:
                self.hooks.fire(event)

    def _reload(self) -> None:
        self.reload_wanted = False
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            if self.reload:
                self.reload()
            self.message("reloaded")
        except DeltakwtError as error:
            self.message(f"reload failed; the old settings stay: {error}")
        notify("READY=1")

    def _end(self) -> None:
        if self.is_logged:
            log("ended", words=self.events, seconds=round(self.spotter.seconds, 3))
        if self.as_json:
            self._line(
                {
                    "event": "end",
                    "words": self.events,
                    "rejected_blocks": self.rejected,
                    "verified": self.spotter.verified,
                    "refused": self.spotter.refused,
                    "hooks": dict(self.hooks.counts) if self.hooks else {},
                    "meter": self.spotter.meter.to_json(),
                }
            )
        elif self.view:
            self.view.draw()

    def _line(self, document: dict[str, object]) -> None:
        # One write per line: hooks report from other threads.
        self.out.write(json.dumps(document, allow_nan=False) + "\n")
        self.out.flush()
