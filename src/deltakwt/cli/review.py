"""`deltakwt review`: mark saved events as right or wrong, and make labelled clips of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import print_json, say
from deltakwt.cli.options import JsonOption

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deltakwt.listen.saved import SavedEvent

HELP = (
    "Enter, y or r: right   p: play   u: other speech   n: noise   a word: that word   s: skip"
    "   q: quit"
)


def review(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Review this folder of listen --save-events.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write the labelled clips to this folder. Default: DIR/labelled."
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="SPLIT",
            help="Make clips of this split: test (for eval), val (for tune) or train.",
        ),
    ] = "test",
    play: Annotated[bool, typer.Option(help="Play each event before the question.")] = True,
    json: JsonOption = False,
) -> None:
    """Mark saved events as right or wrong, and write labelled clips.

    The clips have the layout of Speech Commands, so that eval, tune and train can read them.
    """
    from deltakwt.evaluate.review import review as ask_all
    from deltakwt.evaluate.review import unreviewed, write_clips

    answered = 0
    if unreviewed(folder):
        print(HELP, file=sys.stderr)
    questions = _Questions(folder, play)
    try:
        for _ in ask_all(folder, questions.ask):
            answered += 1
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
    target = out or folder / "labelled"
    counts = write_clips(folder, target, split)
    left = len(unreviewed(folder))
    if json:
        print_json({"answered": answered, "left": left, "out": str(target), "clips": counts})
        return
    listed = ", ".join(f"{label} {count}" for label, count in counts.items()) or "no clips"
    say(f"{answered} answered, {left} left; {target}: {listed}")


class _Questions:
    """Asks one question per event on the terminal."""

    def __init__(self, folder: Path, play: bool) -> None:
        self.folder, self.play = folder, play

    def ask(
        self, saved: SavedEvent, sound: NDArray[np.float32], number: int, total: int
    ) -> str | None:
        """Return the label that was answered, or None to skip the event."""
        from deltakwt.evaluate.review import sketch, typed_label

        print(
            f"\n[{number}/{total}] {saved.label} {saved.score:.2f}"
            f"  at {saved.start:.1f} s  {saved.file!r}\n  {sketch(sound, 64)}",
            file=sys.stderr,
        )
        self._play(saved, self.play)
        while True:
            print("right? ", end="", file=sys.stderr, flush=True)
            text = input().strip().lower()
            if text in ("", "y", "r"):
                return saved.label
            if text == "q":
                raise EOFError
            if text == "s":
                return None
            if text == "p":
                self._play(saved, True)
            elif (label := typed_label(text)) is not None:
                return label
            else:
                print(HELP, file=sys.stderr)

    def _play(self, saved: SavedEvent, wanted: bool) -> None:
        from deltakwt.evaluate.review import play

        if wanted and not play(self.folder / saved.file):
            self.play = False
            print("  (cannot be played: no aplay, afplay or ffplay works)", file=sys.stderr)
