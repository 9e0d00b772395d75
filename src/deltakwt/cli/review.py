"""`deltakwt review`: go through saved events and make labelled clips of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import JsonOption, print_json
from deltakwt.core.config import LABELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from deltakwt.listen.album import Saved

HELP = (
    "Enter or y: right   p: play   u: other speech   n: noise   a word: that word   s: skip"
    "   q: quit"
)


def review(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Filled by listen --save-events.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the labelled clips (DIR/labelled).")
    ] = None,
    split: Annotated[
        str, typer.Option(help="What the clips are for: test (eval), val (tune) or train.")
    ] = "test",
    play: Annotated[bool, typer.Option(help="Play each event before asking.")] = True,
    json: JsonOption = False,
) -> None:
    """Mark saved events as right or wrong; write them in the layout of Speech Commands."""
    from deltakwt.listen.review import unreviewed, walk, write_clips

    answered = 0
    if unreviewed(folder):
        print(HELP, file=sys.stderr)
    asker = _Asker(folder, play)
    try:
        for _ in walk(folder, asker.ask):
            answered += 1
    except (KeyboardInterrupt, EOFError):
        print(file=sys.stderr)
    home = out or folder / "labelled"
    counts = write_clips(folder, home, split)
    left = len(unreviewed(folder))
    if json:
        print_json({"answered": answered, "left": left, "out": str(home), "clips": counts})
        return
    listed = ", ".join(f"{label} {count}" for label, count in counts.items()) or "no clips"
    print(f"{answered} answered, {left} left; {home}: {listed}")


class _Asker:
    """One question an event, on the terminal."""

    def __init__(self, folder: Path, play: bool) -> None:
        self.folder, self.play = folder, play

    def ask(self, saved: Saved, sound: NDArray[np.float32], number: int, total: int) -> str | None:
        from deltakwt.listen.review import check_label, sketch

        print(
            f"\n[{number}/{total}] {saved.label} {saved.score:.2f}"
            f"  at {saved.line.get('start', 0):.1f} s  {saved.file}\n  {sketch(sound, 64)}",
            file=sys.stderr,
        )
        self._play(saved, self.play)
        while True:
            print("right? ", end="", file=sys.stderr, flush=True)
            text = input().strip().lower()
            if text in ("", "y", "yes") and (text != "yes" or saved.label == "yes"):
                return saved.label
            if text == "q":
                raise EOFError
            if text == "s":
                return None
            if text == "p":
                self._play(saved, True)
            elif (label := check_label(text, LABELS)) is not None:
                return label
            else:
                print(HELP, file=sys.stderr)

    def _play(self, saved: Saved, wanted: bool) -> None:
        from deltakwt.listen.playback import play

        if wanted and not play(self.folder / saved.file):
            self.play = False
            print("  (cannot be played: no aplay, afplay or ffplay works)", file=sys.stderr)
