"""`deltakwt serve wyoming` and `deltakwt serve http`: servers for other programs."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deltakwt.cli.options import (
    DEFAULT_MODEL,
    ArithmeticOption,
    ModelOption,
    ProfileOption,
    ThreadsOption,
)
from deltakwt.core.errors import DeltakwtError, MissingExtra

if TYPE_CHECKING:
    from deltakwt.core.model import Model
    from deltakwt.serve.hub import Hub
    from deltakwt.serve.limits import Limits

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
        help="Accept sound this many seconds ahead of real time; 0: no limit.",
    ),
]
IdleOption = Annotated[
    float,
    typer.Option(
        "--idle",
        metavar="SECONDS",
        min=0,
        help="Disconnect after this many seconds without a message; 0: never.",
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


def register(app: typer.Typer) -> None:
    """Add the verb and its servers."""
    servers = typer.Typer(
        help="Serve a model to other programs. Needs the extra 'serve'.", no_args_is_help=True
    )
    servers.command("wyoming")(wyoming)
    servers.command("http")(http)
    app.add_typer(servers, name="serve")


def wyoming(
    uri: Annotated[
        str,
        typer.Option(
            metavar="URI", help="Listen on this address: tcp://HOST:PORT or unix:///PATH."
        ),
    ] = "tcp://127.0.0.1:10400",
    model: ModelsOption = None,
    profile: ProfileOption = None,
    arithmetic: ArithmeticOption = None,
    threads: ThreadsOption = 0,
    log: LogOption = "text",
    max_clients: ClientsOption = 64,
    max_message: MessageOption = 1 << 20,
    max_buffered: BufferedOption = 1 << 20,
    max_ahead: AheadOption = 120.0,
    idle: IdleOption = 600.0,
    stall: StallOption = 10.0,
) -> None:
    """Serve wake words over Wyoming, the protocol of Home Assistant.

    Ends with code 0 after SIGTERM or Ctrl-C. SIGHUP reads the model and its settings again.
    """
    try:
        from deltakwt.serve import wyoming as server
    except ModuleNotFoundError as error:
        raise _missing(error, "wyoming") from None
    from deltakwt.serve.limits import Limits
    from deltakwt.serve.service import parse_uri

    parse_uri(uri)
    limits = Limits(max_clients, max_message, max_buffered, max_ahead, idle, stall)
    names = model or [DEFAULT_MODEL]
    asyncio.run(server.run(_hub(names, profile, arithmetic, threads, log, limits), uri))


def http(
    uri: Annotated[
        str,
        typer.Option(
            metavar="URI", help="Listen on this address: tcp://HOST:PORT or unix:///PATH."
        ),
    ] = "tcp://127.0.0.1:10480",
    model: ModelOption = DEFAULT_MODEL,
    profile: ProfileOption = None,
    arithmetic: ArithmeticOption = None,
    threads: ThreadsOption = 0,
    log: LogOption = "text",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the token that clients must send from this file, or from DELTAKWT_TOKEN."
            " Required if other machines can reach the address.",
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="Allow web pages of this origin. Can be repeated. Default: none."
        ),
    ] = None,
    max_clients: ClientsOption = 64,
    max_message: MessageOption = 1 << 20,
    max_buffered: BufferedOption = 1 << 20,
    max_ahead: AheadOption = 120.0,
    idle: IdleOption = 600.0,
    stall: StallOption = 10.0,
    max_body: Annotated[
        int,
        typer.Option(
            metavar="BYTES", min=1024, help="Accept at most this many bytes per posted file."
        ),
    ] = 64 << 20,
    max_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Allow this many seconds to receive or process a file."
        ),
    ] = 60.0,
) -> None:
    """Serve over HTTP: posted sound files, or PCM over a WebSocket.

    Ends with code 0 after SIGTERM or Ctrl-C. SIGHUP reads the model and its settings again.
    """
    try:
        from deltakwt.serve import http as server
    except ModuleNotFoundError as error:
        raise _missing(error, "starlette", "uvicorn", "websockets") from None
    from deltakwt.serve.limits import Limits
    from deltakwt.serve.service import parse_uri

    parse_uri(uri)
    token = _token(token_file)
    limits = Limits(
        max_clients, max_message, max_buffered, max_ahead, idle, stall, max_body, max_seconds
    )
    hub = _hub([model], profile, arithmetic, threads, log, limits)
    asyncio.run(server.run(hub, uri, token, origin or []))


def _token(file: Path | None) -> str | None:
    """Return the token of the file or of the environment. An option would be visible to others."""
    if file is None:
        return os.environ.get("DELTAKWT_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DeltakwtError(f"--token-file {file}: cannot be read: {error}") from None


def _hub(
    names: list[str],
    profile: str | None,
    arithmetic: str | None,
    threads: int,
    log: str,
    limits: Limits,
) -> Hub:
    """Load the models and start logging."""
    from deltakwt.core.model import load
    from deltakwt.logs import start_logging
    from deltakwt.serve.hub import Hub

    start_logging(log)

    def load_model(name: str) -> Model:
        model = load(name, arithmetic=arithmetic)
        if profile is not None:
            model.setting = profile
        return model

    first, *more = (partial(load_model, name) for name in names)
    return Hub(first, limits, threads, more)


def _missing(error: ModuleNotFoundError, *packages: str) -> Exception:
    """Return the message for the user: the extra to install, or another error."""
    if (error.name or "").split(".")[0] in packages:
        return MissingExtra("deltakwt serve", "serve")
    return error
