"""The outermost layer: bodies that are too large or wrapped up are refused as they come in, and nothing leaves without
its headers. Pure ASGI, so that a request costs it next to nothing."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.logs import Log
from holdfast.server.problems import Problem, invalid, problem_of, respond

log = Log("holdfast.server")

#: Of a body beside the arguments it carries.
ENVELOPE = 64 * 1024
#: Where in a request's scope the layers inside leave headers for the answer.
HEADERS = "holdfast.headers"
#: Where the framework notes what it measures of a request: its own road tells it more.
TRACED = "fastapi.telemetry"
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_DEEPEST = 6

#: What is answered past the framework, by method and path.
Direct = Mapping[tuple[str, str], Callable[[Scope, Receive], Awaitable[Response]]]


class BodyLimits:
    def __init__(self, app: ASGIApp, *, limit: int, new_id: Callable[[], str], direct: Direct) -> None:
        self._app, self._limit, self._new_id, self._direct = app, limit, new_id, direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        extra: list[tuple[bytes, bytes]] = []
        scope[HEADERS] = extra

        async def tell(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = message["headers"] = list(message.get("headers", ()))
                named = {name for name, _ in headers}
                headers += [header for header in (*_ALWAYS, *extra) if header[0] not in named]
            await send(message)

        try:
            self._check_headers(scope)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            answers = self._direct.get((scope["method"], path))
            if answers is None or TRACED in scope:
                await self._app(scope, self._counted(receive), tell)
            else:
                await (await answers(scope, self._counted(receive)))(scope, receive, tell)
        except Exception as error:
            if begun:  # too late for another answer: what is open is cut off
                self._log(error, self._new_id())
                raise
            await self.answer_to(error)(scope, receive, tell)

    def answer_to(self, error: Exception) -> Response:
        """The problem an error is told as. What is nobody's fault but ours is told without its words, and logged."""
        instance = self._new_id()
        if isinstance(error, HoldfastError):
            error = problem_of(error)
        elif isinstance(error, RequestValidationError):
            error = invalid(error)
        if not isinstance(error, Problem) or error.code == "INTERNAL":
            self._log(error, instance)
        if not isinstance(error, Problem):
            error = Problem("INTERNAL", "it was our fault; the server's log says more")
        return respond(error, instance)

    def _log(self, error: Exception, instance: str) -> None:
        """Where it happened, without its words: they may hold what the caller sent."""
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
                if value.strip().lower() != b"chunked":  # not every server that runs us refuses it
                    # Closed, because nobody knows where this body ends: what follows may be a part of it.
                    raise Problem(
                        "BAD_REQUEST",
                        "Transfer-Encoding is something else than chunked",
                        headers={"Connection": "close"},
                    )
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise Problem(
                    "UNSUPPORTED_MEDIA_TYPE", "bodies are taken as they are; send it without Content-Encoding"
                )
        if not lengths:
            return
        if chunked or len(set(lengths)) > 1 or not lengths[0].isdigit():
            raise Problem(
                "BAD_REQUEST", "Content-Length is not one whole number", headers={"Connection": "close"}
            )
        if int(lengths[0][:20]) > self._limit:
            raise self._too_large()

    def _counted(self, receive: Receive) -> Receive:
        """Whatever the headers promised, no more than the limit is ever taken in."""
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._limit:
                    raise self._too_large()
            return message

        return counted

    def _too_large(self) -> Problem:
        return Problem(
            "TOO_LARGE",
            f"the body is larger than {self._limit:,} bytes; store large data elsewhere and pass a reference",
            headers={"Connection": "close"},
        )
