"""The HTTP service of the stand-in.

| request | response |
|---|---|
| `POST /v1/chat/completions` | an answer, whole or as a stream |
| `POST /v1/audio/transcriptions` | the words of a recording |
| `GET /v1/models` | its only model |
| `GET /healthz` | 200 |
| `GET`, `POST`, `DELETE /faults` | the fault switch; 404 unless it is enabled |
| `GET`, `DELETE /calls` | the calls so far, each with its client request id and its time; 404 unless faults are enabled |
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from systems.provider import chat, transcription
from systems.provider.faults import Fault, Faults, Switch
from systems.provider.problems import problem

MODEL = "stand-in-1"
#: More calls than any test makes. Older ones are dropped.
_MAX_CALLS = 100_000


class CallLog:
    """ASGI middleware that records the path, client request id, time and response status of each call."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        call: dict[str, Any] = {
            "path": scope["path"],
            "client_request_id": headers.get(b"x-client-request-id", b"").decode("latin-1"),
            "at": time.monotonic(),
            "status": None,  #: stays None if no response began
            "ended": False,  #: the whole response was sent
        }
        del self.calls[:-_MAX_CALLS]
        self.calls.append(call)

        async def record(message: Message) -> None:
            if message["type"] == "http.response.start":
                call["status"] = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                call["ended"] = True

        await self._app(scope, receive, record)


class KeyCheck:
    """ASGI middleware that refuses API calls without the key."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = dict(scope.get("headers", ())).get(b"authorization", b"")
        guarded = scope["type"] == "http" and scope["path"].startswith("/v1/")
        if guarded and not secrets.compare_digest(header, self._expected):
            refused = problem(401, "invalid_request_error", "invalid_api_key", "The API key is not known.")
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)


class _TestRoutes:
    """The routes of the fault switch and the call log."""

    def __init__(self, switch: Switch, call_log: CallLog) -> None:
        self._switch, self._call_log = switch, call_log

    def routes(self) -> list[Route]:
        return [
            Route("/faults", self.show, methods=["GET"]),
            Route("/faults", self.set, methods=["POST"]),
            Route("/faults", self.clear, methods=["DELETE"]),
            Route("/calls", self.calls, methods=["GET"]),
            Route("/calls", self.forget, methods=["DELETE"]),
        ]

    async def show(self, _: Request) -> Response:
        fault = self._switch.current()
        return JSONResponse({"fault": msgspec.to_builtins(fault), "struck": self._switch.struck})

    async def set(self, request: Request) -> Response:
        try:
            fault = msgspec.json.decode(await request.body(), type=Fault)
        except msgspec.DecodeError as error:
            return problem(422, "invalid_request_error", None, f"This is not a fault: {error}.")
        self._switch.set(fault)
        return await self.show(request)

    async def clear(self, request: Request) -> Response:
        self._switch.set(None)
        return await self.show(request)

    async def calls(self, _: Request) -> Response:
        return JSONResponse({"calls": self._call_log.calls})

    async def forget(self, _: Request) -> Response:
        self._call_log.calls.clear()
        return JSONResponse({"calls": []})


async def _models(_: Request) -> Response:
    return JSONResponse(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "holdfast"}]}
    )


async def _healthz(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def make_app(*, faults: bool = False, key: str = "") -> ASGIApp:
    """Return the service.

    *faults* adds the fault switch and the call log; *key* is required of callers if set.
    """
    switch = Switch()
    inner = Starlette(
        routes=[
            *chat.routes(),
            *transcription.routes(),
            Route("/v1/models", _models, methods=["GET"]),
            Route("/healthz", _healthz, methods=["GET"]),
        ]
    )
    app: ASGIApp = Faults(inner, switch) if faults else inner
    app = KeyCheck(app, key) if key else app
    if faults:
        app = call_log = CallLog(app)
        inner.router.routes.extend(_TestRoutes(switch, call_log).routes())
    return app
