"""`deltakwt serve wyoming` and `deltakwt serve http`: servers for other programs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    ModelOption,
    ProfileOption,
    ThreadsOption,
    with_options,
)
from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.serve.hub import Hub
    from deltakwt.serve.limits import Limits

UriOption = Annotated[
    str,
    typer.Option(metavar="URI", help="Listen on this address: tcp://HOST:PORT or unix:///PATH."),
]
LogOption = Annotated[
    str,
    typer.Option(
        "--log", help="Write the log on stderr in this format: text or json.", metavar="FORMAT"
    ),
]
ClientsOption = Annotated[
    int,
    typer.Option(
        "--max-clients", metavar="N", min=1, help="Accept at most this many clients at once."
    ),
]
MessageOption = Annotated[
    int,
    typer.Option(
        "--max-message",
        metavar="BYTES",
        min=1024,
        help="Accept at most this many bytes per message.",
    ),
]
BufferedOption = Annotated[
    int,
    typer.Option(
        "--max-buffered",
        metavar="BYTES",
        min=1024,
        help="Buffer at most this many bytes per client.",
    ),
]
AheadOption = Annotated[
    float,
    typer.Option(
        "--max-ahead",
        metavar="SECONDS",
        min=0,
        help="Accept sound this many seconds ahead of real time; 0 means no limit.",
    ),
]
IdleOption = Annotated[
    float,
    typer.Option(
        "--idle",
        metavar="SECONDS",
        min=0,
        help="Disconnect after this many seconds without a message; 0 means never.",
    ),
]
ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        envvar="DELTAKWT_MODEL",
        help="Use this model: a name, a model folder, or a .tflite file. Can be repeated: every"
        f" stream then runs through all of them. Default: {DEFAULT_MODEL}.",
    ),
]
StallOption = Annotated[
    float,
    typer.Option(
        "--stall",
        metavar="SECONDS",
        min=0.1,
        help="Allow this many seconds to send or read a message.",
    ),
]


@dataclass(frozen=True)
class ServerArguments:
    """The options of both servers."""

    profile: ProfileOption = None
    arithmetic: ArithmeticOption = None
    threads: ThreadsOption = 0
    log: LogOption = "text"
    max_clients: ClientsOption = 64
    max_message: MessageOption = 1 << 20
    max_buffered: BufferedOption = 1 << 20
    max_ahead: AheadOption = 120.0
    idle: IdleOption = 600.0
    stall: StallOption = 10.0

    def limits(self, **more: Any) -> Limits:
        """Return the limits that these options set for every client."""
        from deltakwt.serve.limits import Limits

        return Limits(
            clients=self.max_clients,
            message=self.max_message,
            buffered=self.max_buffered,
            ahead=self.max_ahead,
            idle=self.idle,
            stall=self.stall,
            **more,
        )


@dataclass(frozen=True)
class WyomingArguments(ServerArguments):
    """The options of `deltakwt serve wyoming`."""

    uri: UriOption = "tcp://127.0.0.1:10400"
    model: ModelsOption = None


@dataclass(frozen=True)
class HttpArguments(ServerArguments):
    """The options of `deltakwt serve http`."""

    uri: UriOption = "tcp://127.0.0.1:10480"
    model: ModelOption = DEFAULT_MODEL
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the token that clients must send from this file, or from DELTAKWT_TOKEN."
            " Required if other machines can reach the address.",
        ),
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Allow web pages of this origin. Can be repeated. Default: none."
        ),
    ] = None
    max_body: Annotated[
        int,
        typer.Option(
            metavar="BYTES", min=1024, help="Accept at most this many bytes per posted file."
        ),
    ] = 64 << 20
    max_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Allow this many seconds to receive or process a file."
        ),
    ] = 60.0


def register(app: typer.Typer) -> None:
    """Add the verb and its servers."""
    servers = typer.Typer(
        help="Serve a model to other programs. Needs the extra 'serve'.", no_args_is_help=True
    )
    servers.command("wyoming")(with_options(wyoming, WyomingArguments))
    servers.command("http")(with_options(http, HttpArguments))
    app.add_typer(servers, name="serve")


def wyoming(arguments: WyomingArguments) -> None:
    """Serve wake words over Wyoming, the protocol of Home Assistant.

    The exit code after SIGTERM or Ctrl-C is 0. SIGHUP reads the model and its settings again.
    """
    try:
        from deltakwt.serve import wyoming as server
    except ModuleNotFoundError as error:
        raise _missing(error, "wyoming") from None
    from deltakwt.serve.service import parse_uri

    parse_uri(arguments.uri)
    hub = _hub(arguments, arguments.model or [DEFAULT_MODEL], arguments.limits())
    asyncio.run(server.run(hub, arguments.uri))


def http(arguments: HttpArguments) -> None:
    """Serve over HTTP: posted sound files, or PCM over a WebSocket.

    The exit code after SIGTERM or Ctrl-C is 0. SIGHUP reads the model and its settings again.
    """
    try:
        from deltakwt.serve import http as server
    except ModuleNotFoundError as error:
        raise _missing(error, "starlette", "uvicorn", "websockets") from None
    from deltakwt.serve.service import parse_uri

    parse_uri(arguments.uri)
    token = _token(arguments.token_file)
    limits = arguments.limits(body=arguments.max_body, seconds=arguments.max_seconds)
    hub = _hub(arguments, [arguments.model], limits)
    asyncio.run(server.run(hub, arguments.uri, token, arguments.origin or []))


def _token(file: Path | None) -> str | None:
    """Return the token of the file or of the environment. An option would be visible to others."""
    if file is None:
        return os.environ.get("DELTAKWT_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DeltakwtError(f"--token-file {file}: cannot be read: {error}") from None


def _hub(arguments: ServerArguments, names: list[str], limits: Limits) -> Hub:
    """Load the models and start logging."""
    from deltakwt.core.model import load
    from deltakwt.logs import start_logging
    from deltakwt.serve.hub import Hub

    start_logging(arguments.log)

    def load_model(name: str) -> Model:
        model = load(name, arithmetic=arguments.arithmetic)
        if arguments.profile is not None:
            model.setting = arguments.profile
        return model

    first, *more = (partial(load_model, name) for name in names)
    return Hub(first, limits, arguments.threads, more)


def _missing(error: ModuleNotFoundError, *packages: str) -> Exception:
    """Return the message for the user: the extra to install, or another error."""
    if (error.name or "").split(".")[0] in packages:
        return MissingExtra("deltakwt serve", "serve")
    return error
