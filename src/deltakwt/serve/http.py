"""The HTTP server: POST a sound file, or stream PCM over a WebSocket; metrics and health."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Iterator
from itertools import count
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from deltakwt.audio import blocks
from deltakwt.core.config import SAMPLE_RATE
from deltakwt.core.errors import DeltakwtError
from deltakwt.listen.spotter import Spotter
from deltakwt.logs import log, notify
from deltakwt.serve.hub import Hub, event_json
from deltakwt.serve.limits import Refused
from deltakwt.serve.openapi import document
from deltakwt.serve.protocols import BoundedHttp, BoundedWebSocket
from deltakwt.serve.service import close_socket, is_local, open_socket, service
from deltakwt.serve.websocket import Listener

STATUS = {"busy": 503, "slow": 503, "too-large": 413, "stall": 408, "token": 401, "origin": 403}
EXTRA_CONNECTIONS = 32  # beyond the clients: for monitors, and to say that the server is busy
GRACE = 5  # seconds that requests have when the server stops
MIN_TOKEN = 16  # characters


class Guard:
    """Refuses requests without the token, and requests of web pages that are not allowed.

    Any web page can make a browser send requests to this machine. Browsers then add an Origin.
    """

    def __init__(self, app: ASGIApp, token: str | None, origins: Collection[str]) -> None:
        self._app, self._token, self._origins = app, token, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refused = self._check(Headers(scope=scope), scope["path"])
            if refused is not None:
                if scope["type"] == "websocket":
                    await WebSocket(scope, receive, send).send_denial_response(answer(refused))
                else:
                    await answer(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> Refused | None:
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return Refused("origin", "web pages of this origin are not allowed; see --origin")
        if self._token is None or path == "/healthz":
            return None
        given = headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return Refused("token", "send the token as: Authorization: Bearer TOKEN")
        return None


def answer(refused: Refused) -> JSONResponse:
    """Return a refusal as a response."""
    status = STATUS.get(refused.code, 400)
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}.get(status)
    return JSONResponse({"error": refused.code, "message": refused.text}, status, headers)


class HttpServer:
    """The resources of the server, with one hub behind them."""

    def __init__(self, hub: Hub, token: str | None = None, origins: Collection[str] = ()) -> None:
        self.hub = hub
        self._numbers = count(1)
        self._document = document(hub.limits, token is not None)
        app = Starlette(
            routes=[
                Route("/v1/spot", self.spot, methods=["POST"]),
                Route("/v1/words", self.words),
                WebSocketRoute("/v1/listen", self.listen),
                Route("/metrics", self.metrics),
                Route("/healthz", self.health),
                Route("/openapi.json", self.openapi),
            ],
            exception_handlers={HTTPException: _http_error, Refused: self._refuse},
        )
        self.app = Guard(app, token, origins)

    async def openapi(self, _request: Request) -> Response:
        """Return the OpenAPI document."""
        return JSONResponse(self._document)

    async def words(self, _request: Request) -> Response:
        """Return the words that the model knows."""
        return JSONResponse(self._about())

    async def metrics(self, _request: Request) -> Response:
        """Return all counters for Prometheus."""
        return PlainTextResponse(self.hub.metrics())

    async def health(self, _request: Request) -> Response:
        """Return ok if a worker thread answers in time."""
        try:
            async with asyncio.timeout(self.hub.limits.stall):
                await self.hub.alive()
        except TimeoutError:
            return answer(Refused("busy", "the worker threads do not answer"))
        return JSONResponse({"status": "ok"})

    async def spot(self, request: Request) -> Response:
        """Return the words in the sound file that is the body."""
        name = f"http-{next(self._numbers)}"
        request.state.name = name
        with self.hub.client(name), tempfile.NamedTemporaryFile(prefix="deltakwt-") as file:
            await self._receive(request, file)
            file.flush()
            model, loop = self.hub.model, asyncio.get_running_loop()
            limit = time.monotonic() + self.hub.limits.seconds
            spotter = Spotter(model)
            try:
                seconds, events = await loop.run_in_executor(
                    self.hub.files, spot_file, spotter, file.name, limit
                )
            except asyncio.CancelledError:  # the server stops, and must not wait for this file
                spotter.stop()
                raise
            self.hub.add_usage(spotter)
            about = {"model": model.name, "setting": str(model.setting)}
            found = [self.hub.count(name, event) for event in events]
            return JSONResponse({**about, "seconds": round(seconds, 3), "events": found})

    async def _receive(self, request: Request, file: Any) -> None:
        """Write the body into a file, within the limits of size and time."""
        limits, size = self.hub.limits, 0
        if request.headers.get("content-type", "").startswith("multipart/"):
            text = "send the file itself as the body, not a form: curl --data-binary @FILE"
            raise Refused("bad-message", text)
        too_large = Refused("too-large", f"the body is larger than {limits.body} bytes")
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > 20 or int(length) > limits.body):
            raise too_large
        try:
            async with asyncio.timeout(limits.seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > limits.body:
                        raise too_large
                    file.write(part)
        except TimeoutError:
            text = f"the body took longer than {limits.seconds:g} s"
            raise Refused("stall", text) from None
        except ClientDisconnect:
            raise Refused("bad-message", "the client left within the body") from None

    async def listen(self, web: WebSocket) -> None:
        """Take PCM in binary messages and send events as JSON; the text "end" ends the stream."""
        name = f"websocket-{next(self._numbers)}"
        try:
            with self.hub.client(name):
                await web.accept()
                await Listener(self.hub, name, web).run(self._about())
        except Refused as refused:  # there are too many clients
            await web.send_denial_response(answer(refused))

    def _about(self) -> dict[str, Any]:
        model = self.hub.model
        return {"model": model.name, "setting": str(model.setting), "words": self.hub.labels}

    async def _refuse(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        if error.code != "busy":  # which the hub has counted
            self.hub.refuse(getattr(request.state, "name", "http"), error)
        return answer(error)


def spot_file(spotter: Spotter, path: str, limit: float) -> tuple[float, list[dict[str, Any]]]:
    """Return the length of a sound file in seconds, and its words.

    Runs in a worker thread, and gives up when the clock shows `limit`.
    """
    events = []
    try:
        for block in blocks(path):
            for start in range(0, len(block), SAMPLE_RATE):
                if time.monotonic() > limit or spotter.stopped:
                    text = f"processing stopped after {spotter.seconds:.0f} s of sound"
                    raise Refused("slow", f"{text}: it took too long; send shorter files")
                events += spotter.push(block[start : start + SAMPLE_RATE])
        seconds = spotter.seconds
        events += spotter.flush()
    except DeltakwtError as error:
        raise Refused("bad-audio", str(error).replace(path, "body")) from None
    return seconds, [event_json(event) for event in events]


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = {"error": "http", "message": error.detail}
    return JSONResponse(body, error.status_code, error.headers)


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves the signals to `service`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


def check_token(token: str | None, opened: socket.socket) -> None:
    """Refuse to serve the network without a token, or with one that can be guessed."""
    if token is not None and len(token) < MIN_TOKEN:
        raise DeltakwtError(f"the token has {len(token)} characters: use at least {MIN_TOKEN}")
    if token is None and not is_local(opened):
        raise DeltakwtError(
            "--uri: other machines can reach this address: give --token-file or DELTAKWT_TOKEN"
        )


@contextlib.asynccontextmanager
async def serving(
    hub: Hub, uri: str, token: str | None = None, origins: Collection[str] = ()
) -> AsyncIterator[socket.socket]:
    """Run a server while the block runs; yields its socket."""
    opened = open_socket(uri)
    try:
        check_token(token, opened)
        config = uvicorn.Config(
            HttpServer(hub, token, origins).app,
            http=BoundedHttp,
            ws=type("LimitedWebSocket", (BoundedWebSocket,), {"limits": hub.limits}),
            ws_max_size=hub.limits.message,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=hub.limits.clients + EXTRA_CONNECTIONS,
            timeout_graceful_shutdown=GRACE,
        )
        server = QuietServer(config)
        running = asyncio.create_task(server.serve(sockets=[opened]))
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        log("ready", uri=uri, model=hub.model.name, setting=str(hub.model.setting))
        try:
            yield opened
        finally:
            server.should_exit = True
            await running
            log("stopped")
    finally:
        close_socket(opened, uri)


async def run(hub: Hub, uri: str, token: str | None, origins: Collection[str]) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with service(hub.alive, hub.reload) as stop, serving(hub, uri, token, origins):
        notify("READY=1")
        await stop.wait()
    hub.close()
