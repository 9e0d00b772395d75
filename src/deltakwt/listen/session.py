"""One run of `deltakwt listen`: sound goes from a source to a spotter, events go to the outputs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.listen.decision import Event
from deltakwt.listen.hooks import Hooks
from deltakwt.listen.pcm import BadBlock, SourceLost
from deltakwt.listen.saved import EventWriter
from deltakwt.listen.sources import Block
from deltakwt.listen.spotter import Spotter
from deltakwt.listen.view import View
from deltakwt.text import wall_time


@dataclass
class Session:
    """The outputs of a run: a live view, JSON lines or plain lines, hooks and saved events."""

    spotter: Spotter
    out: TextIO = field(default_factory=lambda: sys.stdout)
    as_json: bool = False
    view: View | None = None
    hooks: Hooks | None = None
    saved: EventWriter | None = None
    rejected: int = 0  # blocks that were not sound
    events: int = 0

    def run(self, blocks: Iterable[Block]) -> None:
        """Run until the source ends, Ctrl-C, or the reader of the output goes away.

        A source that is lost raises `SourceLost` after everything was reported.
        """
        is_complete, lost = False, None
        try:
            try:
                for block, rate in blocks:
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
        if self.as_json:
            self._line({"event": "message", "message": text})
        elif self.view:
            self.view.message(text)
        else:
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
        for event in events:
            self.events += 1
            if self.as_json:
                self._line({"event": "word", **event.to_json(), "wall_time": wall_time()})
            elif self.view:
                self.view.word(event)
            else:
                text = f"{event.start:10.2f} {event.end:10.2f}  {event.label:<12}{event.score:.3f}"
                print(text, file=self.out, flush=True)
            if self.saved:
                self.saved.add(event)
            if self.hooks:
                self.hooks.fire(event)

    def _end(self) -> None:
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
