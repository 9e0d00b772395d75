"""`deltakwt listen`: the words in sound from a microphone, a file or a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.common import console, load_model, print_json, table
from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    GateOption,
    HopOption,
    ModelOption,
    OnOption,
    ProfileOption,
    ReuseOption,
    ThresholdsOption,
    VerifyOption,
    with_options,
)
from deltakwt.core.errors import DeltakwtError

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltakwt.core.model import Model
    from deltakwt.listen.decision import Decision
    from deltakwt.listen.pcm import Format
    from deltakwt.listen.runner import Reading
    from deltakwt.listen.session import Session
    from deltakwt.listen.sources import Block
    from deltakwt.listen.spotter import SecondStage


@dataclass(frozen=True)
class ListenArguments:
    """The options of `deltakwt listen`."""

    model: ModelOption = DEFAULT_MODEL
    profile: ProfileOption = None
    thresholds: ThresholdsOption = None
    arithmetic: ArithmeticOption = None
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            help="Read this sound file, or raw PCM or WAV from stdin with '-'."
            " Default: the microphone.",
        ),
    ] = None
    fast: Annotated[
        bool, typer.Option("--fast", help="Read a file as fast as possible, not in real time.")
    ] = False
    raw_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="Read raw PCM on stdin in this format: u8, s16, s24, s32 or f32, little-endian.",
        ),
    ] = "s16"
    raw_rate: Annotated[
        int, typer.Option(metavar="HZ", help="Read raw PCM on stdin at this rate, in Hz.")
    ] = 16_000
    raw_channels: Annotated[
        int, typer.Option(metavar="N", help="Read raw PCM on stdin with this many channels.")
    ] = 1
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="Use this microphone: its number or a part of its name."
        ),
    ] = None
    devices: Annotated[bool, typer.Option("--devices", help="List the microphones and exit.")] = (
        False
    )
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="WORD=COMMAND",
            help="Run a command, without a shell, when the word is found. Can be repeated.",
        ),
    ] = None
    hook_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Kill a command of --on after this many seconds."
        ),
    ] = 10.0
    save_events: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Save the sound around each event in this folder, for `review`."
        ),
    ] = None
    gate: GateOption = None
    verify: VerifyOption = None
    hop: HopOption = None
    reuse: ReuseOption = None
    threshold: OnOption = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="FORMAT",
            help="Write words and messages to stderr as a log, for use as a service. FORMAT is text"
            " or json. Without --json, nothing is then printed on stdout.",
        ),
    ] = None


def register(app: typer.Typer) -> None:
    """Add `listen`, `stress` and `review`."""
    from deltakwt.cli.review import review
    from deltakwt.cli.stress import StressArguments, stress

    app.command("listen")(with_options(listen, ListenArguments))
    app.command("stress")(with_options(stress, StressArguments))
    app.command("review")(review)


def listen(arguments: ListenArguments) -> None:
    """Find words as they are said: microphone, file or pipe.

    The exit code after SIGTERM or Ctrl-C is 0. SIGHUP reads the model and its settings again,
    unless the output is a terminal.
    """
    from deltakwt.listen.hooks import parse_hooks
    from deltakwt.listen.pcm import Format
    from deltakwt.listen.session import Session
    from deltakwt.listen.spotter import Spotter
    from deltakwt.logs import start_logging

    if arguments.devices:
        _list_devices(arguments.as_json)
        return
    if arguments.fast and arguments.source is None:
        raise DeltakwtError("--fast: a microphone cannot be faster than real time; give --input")
    raw = Format(arguments.raw_format, arguments.raw_rate, arguments.raw_channels)
    if arguments.log is not None:
        start_logging(arguments.log)

    def prepare() -> tuple[Model, dict[str, Any]]:
        loaded = load_model(
            arguments.model, arguments.profile, arguments.thresholds, arguments.arithmetic
        )
        parse_hooks(arguments.on or [], loaded.labels)
        second = None if arguments.verify is None else second_stage(loaded, arguments.verify)
        decision = decision_settings(loaded, arguments.hop, arguments.reuse, arguments.threshold)
        gate = gate_of(loaded, arguments.gate)
        return loaded, {"decision": decision, "gate": gate, "verify": second}

    loaded, how = prepare()
    spotter = Spotter(loaded, **how)
    session = Session(spotter, as_json=arguments.as_json, is_logged=arguments.log is not None)
    commands = parse_hooks(arguments.on or [], loaded.labels)
    _add_outputs(
        session,
        arguments.source or arguments.device,
        arguments.fast,
        commands,
        arguments.hook_limit,
        arguments.save_events,
    )
    blocks = _blocks(arguments.source, arguments.fast, raw, arguments.device, session.message)

    def reload() -> None:
        changed, how = prepare()
        spotter.restart(changed, **how)
        if session.saved:
            session.saved.facts = _facts(changed)

    session.reload = reload
    with _terminate_as_interrupt(), _hang_up_as_reload(session):
        session.run(blocks)
    if arguments.fast and not arguments.as_json and arguments.log is None:
        _print_summary(spotter.meter.ever)


def _add_outputs(
    session: Session,
    source: str | None,
    fast: bool,
    commands: dict[str, list[str]],
    hook_limit: float,
    save_events: Path | None,
) -> None:
    """Add the live view, the hooks and the saved events to a session."""
    from deltakwt.listen.hooks import Hooks
    from deltakwt.listen.saved import EventWriter
    from deltakwt.listen.session import View

    spotter = session.spotter
    model = spotter.model
    if sys.stdout.isatty() and not (session.as_json or session.is_logged or fast):
        name = "stdin" if source == "-" else Path(source).name if source else "microphone"
        title = f"{Path(model.name).name} {model.setting}: {name}"
        session.view = View(sys.stdout, title, spotter.meter)
    if commands:
        session.hooks = Hooks(commands, hook_limit, session.message)
    if save_events:
        session.saved = EventWriter(save_events, spotter, _facts(model))


def _facts(model: Model) -> dict[str, str]:
    """Return what is saved with every event."""
    return {"model": model.name, "setting": str(model.setting)}


def gate_of(model: Model, name: str | None) -> Model | None:
    """Return the small model of `--gate`."""
    return None if name is None else load_model(name, arithmetic=model.arithmetic)


def second_stage(model: Model, name: str) -> SecondStage:
    """Return the second stage of `--verify`."""
    from deltakwt.core.model import load
    from deltakwt.core.setting import DENSE
    from deltakwt.listen.spotter import SecondStage

    if name == DENSE.name or name in model.profiles.profiles:
        return SecondStage(model, name)
    return SecondStage(load(name, arithmetic=model.arithmetic))


def decision_settings(
    model: Model, hop: float | None, reuse: float | None, on: float | None
) -> Decision:
    """Return the model's own decision settings, changed by the command line."""
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
    raw: Format,
    device: str | None,
    tell: Callable[[str], None],
) -> Iterator[Block]:
    """Return the blocks of the source that was asked for."""
    from deltakwt.listen import pcm, sources

    if source == "-":
        seconds = sources.FAST_BLOCK if fast else sources.LIVE_BLOCK
        return pcm.read_stream(sys.stdin.buffer, raw, seconds)
    if source is not None:
        if fast:
            return sources.read_file(source, sources.FAST_BLOCK)
        return sources.paced(sources.read_file(source, sources.LIVE_BLOCK))
    chosen = int(device) if device is not None and device.isdigit() else device
    return sources.reconnecting(lambda: sources.microphone(chosen), tell)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM, as service managers send it, end a run as cleanly as Ctrl-C."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _hang_up_as_reload(session: Session) -> Iterator[None]:
    """Let SIGHUP read the settings again, except where it means that the terminal was closed."""
    hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hang_up is None or sys.stdout.isatty() or signal.getsignal(hang_up) is signal.SIG_IGN:
        yield
        return

    def want(_number: int, _frame: object) -> None:
        session.reload_wanted = True

    before = signal.signal(hang_up, want)
    try:
        yield
    finally:
        signal.signal(hang_up, before)


def _print_summary(reading: Reading) -> None:
    text = (
        f"{reading.seconds:.1f} s of sound, {reading.windows} windows"
        f" ({reading.reused_percent:.1f}% reused): {reading.macs_percent:.2f}% of the dense MACs,"
        f" {reading.macs_per_second / 1e6:.1f} M per second, {reading.cpu_percent:.3f}% of one core"
    )
    print(text, file=sys.stderr)


def _list_devices(as_json: bool) -> None:
    from deltakwt.listen.sources import devices

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
