"""The outermost layer of the API: it refuses bodies that are too large or encoded, turns errors into problem documents, and adds
headers to every response. It is pure ASGI, so that it costs little."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.logging import Log
from holdfast.server.problems import Problem, invalid, problem_of, respond

log = Log("holdfast.server")

#: How many bytes of a body may come on top of the arguments in it.
ENVELOPE = 64 * 1024
#: Where in a request's scope inner layers leave headers for the response.
HEADERS = "holdfast.headers"
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
#: How many frames of a traceback are logged.
_DEEPEST = 6

#: Returns the problem to respond with for an error that a request has met.
Explain = Callable[[Scope, Exception], Awaitable[Exception]]


class BodyLimits:
    """Stands around *app*: bodies have at most *limit* bytes. *explain* may replace an error before it is answered."""

    def __init__(self, app: ASGIApp, *, limit: int, new_id: Callable[[], str], explain: Explain) -> None:
        self._app, self._limit, self._new_id, self._explain = app, limit, new_id, explain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        extra: list[tuple[bytes, bytes]] = []
        scope[HEADERS] = extra
        # Without the handlers of a site in which this API is mounted: they would answer its errors before this layer does. The
        # scope is not copied, because middleware of the site reads in it which route was called.
        scope["starlette.exception_handlers"] = ({}, {})

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = message["headers"] = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                headers += [header for header in (*_ALWAYS, *extra) if header[0] not in names]
            await send(message)

        try:
            self._check_headers(scope)
            await self._app(scope, self._counted(receive), send_with_headers)
        except Exception as error:
            if begun:  # another response cannot be sent any more: the connection is cut off
                self._log(error, self._new_id())
                raise
            response = self._respond_to(await self._explain(scope, error))
            await response(scope, receive, send_with_headers)

    def _respond_to(self, error: Exception) -> Response:
        """Return the problem document for *error*. The words of unexpected errors are logged and not sent."""
        instance = self._new_id()
        if isinstance(error, HoldfastError):
            error = problem_of(error)
        elif isinstance(error, RequestValidationError):
            error = invalid(error)
        if not isinstance(error, Problem) or error.code == "INTERNAL":
            self._log(error, instance)
        if not isinstance(error, Problem):
            error = Problem("INTERNAL", "internal error; see the server's log")
        return respond(error, instance)

    def _log(self, error: Exception, instance: str) -> None:
        """Log where *error* was raised, without its message, which may contain what the caller sent."""
        cause = error.__cause__ or error.__context__ or error
        frames = traceback.extract_tb(cause.__traceback__)[-_DEEPEST:]
        place = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
        log.warning("request.failed", request_id=instance, error=type(cause).__name__, at=" > ".join(place))

    def _check_headers(self, scope: Scope) -> None:
        lengths: list[bytes] = []
        chunked = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                lengths.append(value)
            elif name == b"transfer-encoding":
                chunked = True
                if value.strip().lower() != b"chunked":  # not every server refuses it
                    # Close the connection: where this body ends is unknown, so what follows may be a part of it.
                    raise Problem(
                        "BAD_REQUEST",
                        "Transfer-Encoding must be chunked",
                        headers={"Connection": "close"},
                    )
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise Problem(
                    "UNSUPPORTED_MEDIA_TYPE", "encoded bodies are not read; send it without Content-Encoding"
                )
        if not lengths:
            return
        if chunked or len(set(lengths)) > 1 or not lengths[0].isdigit():
            raise Problem(
                "BAD_REQUEST", "Content-Length must be one whole number", headers={"Connection": "close"}
            )
        if int(lengths[0][:20]) > self._limit:
            raise self._too_large()

    def _counted(self, receive: Receive) -> Receive:
        """Return *receive* with a check that no more than the limit is received, whatever the headers say."""
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > self._limit:
                    raise self._too_large()
            return message

        return counted

    def _too_large(self) -> Problem:
        return Problem(
            "TOO_LARGE",
            f"the body is larger than {self._limit:,} bytes; store large data elsewhere and pass a reference",
            headers={"Connection": "close"},
        )
