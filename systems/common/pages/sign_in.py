"""Sign in to a page with an API key of Holdfast. The key is kept in a cookie that scripts cannot read.

The cookie ends with the browser, is sent by pages of this server only, and is looked up with each request: a
revoked key ends the session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast import Holdfast
from systems.common.requests import UNREADABLE, bearer_key, bounded_body, find_key, is_own_page

_MOST_BODY = 2_000

#: Returns what the page shows about a caller, such as its credits.
About = Callable[[Request], Awaitable[dict[str, Any]]]


class _SignIn(msgspec.Struct, forbid_unknown_fields=True):
    key: str


class SignIn:
    """Finds the key of a request: that of its `Authorization` header, or that of the page's cookie."""

    def __init__(self, app: Holdfast, system: str) -> None:
        # Cookies are not kept apart by port, and several systems may run on one machine.
        self._app, self._cookie = app, f"{system}_key"

    async def key_of(self, request: Request) -> Any | None:
        """Return the valid key of *request*, or None."""
        if "authorization" in request.headers:
            return await bearer_key(self._app, request)
        secret = request.cookies.get(self._cookie)
        return await find_key(self._app, secret) if secret and is_own_page(request) else None

    def routes(self, about: About) -> list[BaseRoute]:
        """Return the routes of `/session`: GET shows the caller, POST signs in, DELETE signs out.

        *about* returns the body of GET for any request, signed in or not.
        """

        async def show(request: Request) -> Response:
            return _answer(await about(request))

        async def sign_in(request: Request) -> Response:
            body = await bounded_body(request, _MOST_BODY)
            try:
                secret = msgspec.json.decode(body or b"", type=_SignIn).key.strip()
            except UNREADABLE:
                return _problem(400, "Send the key as JSON: key.")
            if not is_own_page(request):
                return _problem(403, "This request was sent by a page of another site.")
            if await find_key(self._app, secret) is None:
                return _problem(401, "This key is unknown, revoked or expired.")
            answer = _answer({"signed_in": True})
            answer.headers["set-cookie"] = self._set_cookie(request, secret)
            return answer

        async def sign_out(request: Request) -> Response:
            if not is_own_page(request):
                return _problem(403, "This request was sent by a page of another site.")
            answer = _answer({"signed_in": False})
            answer.headers["set-cookie"] = self._set_cookie(request, "") + "; Max-Age=0"
            return answer

        path = "/session"
        return [
            Route(path, show, methods=["GET"]),
            Route(path, sign_in, methods=["POST"]),
            Route(path, sign_out, methods=["DELETE"]),
        ]

    def _set_cookie(self, request: Request, secret: str) -> str:
        over_tls = "; Secure" if request.url.scheme == "https" else ""
        return f"{self._cookie}={secret}; Path=/; HttpOnly; SameSite=Strict{over_tls}"


def _answer(body: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, {"cache-control": "no-store", "x-content-type-options": "nosniff"})


def _problem(status: int, detail: str) -> Response:
    return _answer({"status": status, "detail": detail, "message": detail}, status)
