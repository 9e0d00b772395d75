"""`deltakwt listen`, `stress` and `review`: words in sound that has no end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.common import (
    DEFAULT_MODEL,
    ModelOption,
    ProfileOption,
    ThresholdsOption,
    console,
    load_model,
    print_json,
    table,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltakwt.core.model import Model
    from deltakwt.listen.decision import Decision
    from deltakwt.listen.meter import Reading
    from deltakwt.listen.sources import Block
    from deltakwt.listen.spotter import Verify

HopOption = Annotated[
    float | None, typer.Option(help="Seconds from window to window (the model's: 0.1).")
]
ReuseOption = Annotated[
    float | None, typer.Option(help="How much a window may differ and not be run again; 0: exact.")
]
OnOption = Annotated[
    float | None, typer.Option("--threshold", help="Score of a word, for all words alike.")
]


def register(app: typer.Typer) -> None:
    """Add the three verbs."""
    from deltakwt.cli.review import review
    from deltakwt.cli.stress import stress

    for verb in (listen, stress, review):
        app.command()(verb)


def listen(
    model: ModelOption = DEFAULT_MODEL,
    profile: ProfileOption = None,
    thresholds: ThresholdsOption = None,
    source: Annotated[
        str | None,
        typer.Option("--input", "-i", help="A sound file, or - for PCM or WAV from stdin."),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="A file as fast as it goes.")] = False,
    raw_format: Annotated[
        str, typer.Option(help="Raw PCM on stdin: u8, s16, s24, s32, f32 (little-endian).")
    ] = "s16",
    raw_rate: Annotated[int, typer.Option(help="Raw PCM on stdin: samples a second.")] = 16_000,
    raw_channels: Annotated[int, typer.Option(help="Raw PCM on stdin: channels.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="Microphone: its number or part of its name.")
    ] = None,
    devices: Annotated[bool, typer.Option("--devices", help="List microphones and exit.")] = False,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="WORD=COMMAND", help="Run a command when a word is heard."),
    ] = None,
    hook_limit: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which such a command is killed.")
    ] = 10.0,
    save_events: Annotated[
        Path | None, typer.Option(help="Keep the sound around each event here, for review.")
    ] = None,
    verify: Annotated[
        str | None, typer.Option(help="Confirm events: 'dense', a profile, or another model.")
    ] = None,
    hop: HopOption = None,
    reuse: ReuseOption = None,
    threshold: OnOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Listen to a microphone, a file or a pipe, and tell the words."""
    from deltakwt.listen.album import Album
    from deltakwt.listen.hooks import Hooks, parse_hooks
    from deltakwt.listen.session import Session
    from deltakwt.listen.spotter import Spotter
    from deltakwt.listen.view import View

    if devices:
        _list_devices(as_json)
        return
    if fast and source is None:
        raise DeltakwtError("--fast: a microphone cannot be faster than real time; give --input")
    loaded = load_model(model, profile, thresholds)
    commands = parse_hooks(on or [], loaded.labels)
    second = None if verify is None else _verify(loaded, verify)
    decision = decision_settings(loaded, hop, reuse, threshold)
    spotter = Spotter(loaded, decision=decision, verify=second)
    session = Session(spotter, as_json=as_json)
    if sys.stdout.isatty() and not as_json and not fast:
        setting = str(loaded.setting)
        heard = "stdin" if source == "-" else Path(source).name if source else device
        title = f"{Path(loaded.name).name} {setting}: {heard or 'microphone'}"
        session.view = View(sys.stdout, title, spotter.meter)
    if commands:
        session.hooks = Hooks(commands, hook_limit, session.tell)
    if save_events:
        facts = {"model": loaded.name, "profile": str(loaded.setting)}
        session.album = Album(save_events, spotter, facts)
    blocks = _blocks(source, fast, (raw_format, raw_rate, raw_channels), device, session.tell)
    with _terminated_like_interrupted():
        session.run(blocks)
    if fast and not as_json:
        _summary(spotter.meter.ever)


def _verify(model: Model, name: str) -> Verify:
    """The second stage of `--verify`."""
    from deltakwt.core.model import load
    from deltakwt.listen.spotter import confirm_with

    if name == "dense":
        second = copy(model)
        second.profile = None
        return confirm_with(second)
    if name in model.profiles.profiles:
        return confirm_with(model, profile=name)
    return confirm_with(load(name))


def decision_settings(
    model: Model, hop: float | None, reuse: float | None, on: float | None
) -> Decision:
    """The model's own, changed by the command line."""
    from deltakwt.listen.spotter import decision_of

    chosen = decision_of(model)
    if on is not None:
        chosen = chosen.at(on)
    if hop is not None:
        chosen = replace(chosen, hop=hop)
    return chosen if reuse is None else replace(chosen, reuse=reuse)


def _blocks(
    source: str | None,
    fast: bool,
    raw: tuple[str, int, int],
    device: str | None,
    tell: Callable[[str], None],
) -> Iterator[Block]:
    """The sound that was asked for."""
    from deltakwt.listen import pcm, sources

    if source == "-":
        form = pcm.Format(*raw)
        return pcm.read_stream(sys.stdin.buffer, form, sources.FAST if fast else sources.LIVE)
    if source is not None:
        if fast:
            return sources.read_file(source, sources.FAST)
        return sources.paced(sources.read_file(source, sources.LIVE))
    from deltakwt.listen.microphone import microphone

    chosen = int(device) if device is not None and device.isdigit() else device
    return sources.reconnecting(lambda: microphone(chosen), tell)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM, as service managers send it, ends a run as cleanly as Ctrl-C."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(reading: Reading) -> None:
    text = (
        f"{reading.seconds:.1f} s of sound, {reading.windows} windows"
        f" ({reading.reused_percent:.1f}% reused): {reading.macs_percent:.2f}% of the dense MACs,"
        f" {reading.macs_per_second / 1e6:.1f} M a second, {reading.cpu_percent:.3f}% of one core"
    )
    print(text, file=sys.stderr)


def _list_devices(as_json: bool) -> None:
    from deltakwt.listen.microphone import devices

    found = devices()
    if as_json:
        print_json(found)
        return
    if not found:
        raise DeltakwtError("no microphone found; plug one in, or use --input")
    rows = table("Microphones", "number", "name", "channels", "Hz", "default")
    for one in found:
        mark = "yes" if one["default"] else ""
        rows.add_row(str(one["number"]), one["name"], str(one["channels"]), str(one["rate"]), mark)
    console().print(rows)
