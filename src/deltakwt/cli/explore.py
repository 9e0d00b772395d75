"""`deltakwt explore`: a page that shows what a model computes for a sound."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import note, say
from deltakwt.cli.options import DEFAULT_MODEL
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from deltakwt.explore.live import LiveSound
    from deltakwt.listen.sources import Block


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(explore)


def explore(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Offer these sound files as examples.", show_default=False
        ),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Offer this model: a name, a model folder, or a .tflite file of the KWT authors."
            f" Can be repeated. Default: {DEFAULT_MODEL}, and the other shipped models.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Show the sound of this machine's microphone as it comes."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            help="With --live, read this sound file in real time, or PCM or WAV from stdin ('-').",
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Show what a model computes for a sound, in the browser.

    The page is served on this machine only, at a random port and address. Ctrl-C ends it.
    """
    from deltakwt.audio import open_sound
    from deltakwt.explore.server import Server
    from deltakwt.explore.site import Site, shipped_models
    from deltakwt.weights.registry import resolve

    if source is not None and not live:
        raise DeltakwtError("--input: needs --live; give a file without --input to open it")
    sounds = files or ([] if live else [Path(__file__).parents[1] / "selftest.flac"])
    given = [] if source is None or source == "-" else [Path(source)]
    for path in [*sounds, *given]:
        if not path.exists():
            raise DeltakwtError(f"{path}: no such file; give sound files")
        with open_sound(path):  # report a file that is not sound now, not in the browser
            pass
    for model in models or []:
        resolve(model)  # a wrong name is an error now, not in the browser
    site = Site.of(models or shipped_models(DEFAULT_MODEL), sounds, is_live=live)
    followed = _live_sound(source) if live else None
    with Server(site, followed) as server, suppress(KeyboardInterrupt):
        threading.Thread(target=site.prepare, daemon=True).start()
        if followed:
            followed.start()
        say(server.url)
        sys.stdout.flush()
        if browser:
            _open_browser(server.url)
        server.serve_forever()


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        note("no browser was found; open the address above")


def _live_sound(source: str | None) -> LiveSound:
    from deltakwt.explore.live import LiveSound

    return LiveSound(_blocks(source), note)


def _blocks(source: str | None) -> Iterator[Block]:
    """Return the blocks of a pipe, of a file in real time, or of the microphone."""
    from deltakwt.listen import pcm, sources

    if source == "-":
        return pcm.read_stream(sys.stdin.buffer, pcm.Format("s16", 16_000, 1), sources.LIVE_BLOCK)
    if source is not None:
        return sources.paced(sources.read_file(source, sources.LIVE_BLOCK))
    return sources.reconnecting(lambda: sources.microphone(None), note)
