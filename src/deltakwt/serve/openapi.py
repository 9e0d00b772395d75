"""The OpenAPI document of the HTTP server."""

from __future__ import annotations

from typing import Any

import deltakwt
from deltakwt.serve.limits import Limits

# Status codes, the code in the body and the meaning of every refusal.
REFUSALS = {
    400: "The body is not a sound file that can be read, or the request is malformed.",
    401: "The token is missing or wrong.",
    403: "A web page of an origin that is not allowed sent the request.",
    404: "There is no such resource.",
    405: "The resource does not have this method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    503: "The server is busy, or processing the sound took too long.",
}


def document(limits: Limits, has_token: bool) -> dict[str, Any]:
    """Return the description of all resources; the WebSocket is described in docs/serve.md."""
    spec: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "deltakwt",
            "version": deltakwt.__version__,
            "description": "Keyword spotting whose compute follows the sound."
            " The WebSocket /v1/listen takes PCM and sends events; see docs/serve.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/spot": {"post": _spot(limits)},
            "/v1/words": {"get": _get("getWords", "Return the words that the model knows.", WORDS)},
            "/healthz": {"get": _get("getHealth", "Return whether the server works.", HEALTH)},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {
                "get": _get("getOpenapi", "Return this document.", {"type": "object"})
            },
        },
        "components": {"schemas": {"Error": ERROR, "Event": EVENT}},
    }
    # A client can leave the token away wherever it is not asked for.
    spec["paths"]["/healthz"]["get"]["security"] = []
    spec["paths"]["/healthz"]["get"]["responses"] |= _refusals(503)
    if has_token:
        spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        spec["security"] = [{"token": []}]
    return spec


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
SECONDS = {"type": "number", "minimum": 0}
MOMENT = {"type": "string", "format": "date-time"}
ERROR = _object(error=TEXT, message=TEXT)
EVENT = _object(
    label=TEXT,
    score={"type": "number", "minimum": 0, "maximum": 1},
    start=SECONDS,
    end=SECONDS,
    time=SECONDS,
    wall_time=MOMENT,
)
HEALTH = _object(status={"const": "ok"})
WORDS = _object(model=TEXT, setting=TEXT, words={"type": "array", "items": TEXT})
FOUND = _object(
    model=TEXT,
    setting=TEXT,
    seconds=SECONDS,
    events={"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
)


def _json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(*statuses: int) -> dict[str, Any]:
    error = {"$ref": "#/components/schemas/Error"}
    return {str(status): _json(error, REFUSALS[status]) for status in statuses}


def _get(name: str, summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": _json(schema, "The answer."), **_refusals(400, 401, 403)}
    return {"operationId": name, "summary": summary, "responses": responses}


def _metrics() -> dict[str, Any]:
    operation = _get("getMetrics", "Return counters in the text format of Prometheus.", {})
    content = {"text/plain": {"schema": TEXT}}
    operation["responses"]["200"] = {"description": "The counters.", "content": content}
    return operation


def _spot(limits: Limits) -> dict[str, Any]:
    return {
        "operationId": "spot",
        "summary": "Find the words in a sound file.",
        "description": "The body is the file itself: WAV, FLAC, Ogg, MP3 and whatever else"
        f" libsndfile reads, of at most {limits.body} bytes. It may have any content type; a form"
        " (multipart) is refused.",
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"maxLength": limits.body}}},
        },
        "responses": {
            "200": _json(FOUND, "The words in the order of time."),
            **_refusals(400, 401, 403, 408, 413, 503),
        },
    }
