"""One run of `deltakwt listen`: source to spotter to whoever wants to know."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from deltakwt.listen.album import Album
from deltakwt.listen.hooks import Hooks
from deltakwt.listen.intake import BadBlock
from deltakwt.listen.sources import Block
from deltakwt.listen.spotter import Detection, Spotter
from deltakwt.listen.view import View


@dataclass
class Session:
    """Who is told: a live view, lines of JSON, or plain lines; hooks; the album."""

    spotter: Spotter
    out: TextIO = field(default_factory=lambda: sys.stdout)
    as_json: bool = False
    view: View | None = None
    hooks: Hooks | None = None
    album: Album | None = None
    rejected: int = 0  # blocks that were no sound
    events: int = 0

    def run(self, blocks: Iterable[Block]) -> None:
        """Until the source ends, Ctrl-C, or nobody reads any more; each is a clean end."""
        ended = False
        try:
            for block, rate in blocks:
                self._take(block, rate)
            self._tell_events(self.spotter.flush())
            ended = True
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:
            # What is still buffered must not fail again when Python closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())
        finally:
            self.spotter.stop()
            if self.album:
                self.album.update(ended=True)
            if self.hooks:
                self.hooks.close(kill=not ended)
        self._end()

    def tell(self, message: str) -> None:
        """Something that is not a word: lost microphones, failed hooks, bad blocks."""
        if self.as_json:
            self._line({"event": "message", "message": message})
        elif self.view:
            self.view.tell(message)
        else:
            print(f"deltakwt: {message}", file=sys.stderr)

    def _take(self, block: NDArray[np.floating], rate: int) -> None:
        try:
            events = self.spotter.push(block, rate)
        except BadBlock as error:
            self.rejected += 1
            self.tell(str(error))
            events = self.spotter.push(np.zeros(len(block), np.float32), rate)  # time goes on
        self._tell_events(events)
        if self.view:
            self.view.hear(block)
        if self.album:
            self.album.update()

    def _tell_events(self, events: list[Detection]) -> None:
        for event in events:
            self.events += 1
            if self.as_json:
                self._line({"event": "word", **event.to_json()})
            elif self.view:
                self.view.word(event)
            else:
                text = f"{event.start:10.2f} {event.end:10.2f}  {event.label:<12}{event.score:.3f}"
                print(text, file=self.out, flush=True)
            if self.album:
                self.album.add(event)
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
        self.out.write(json.dumps(document, allow_nan=False) + "\n")  # whole: hooks tell things too
        self.out.flush()
