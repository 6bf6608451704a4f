"""The outermost middleware: it adds the security headers and a new session's cookie to every response."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from systems.common.pages.files import PAGE_HEADERS
from systems.converter.web.callers import SET_COOKIE

_ALWAYS = [
    (name.encode(), value.encode()) for name, value in (PAGE_HEADERS | {"cache-control": "no-store"}).items()
]


class Headers:
    """ASGI middleware that adds headers to each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"] = list(message.get("headers", ()))
                present = {name for name, _ in headers}
                headers += [header for header in _ALWAYS if header[0] not in present]
                if SET_COOKIE in scope:
                    headers.append((b"set-cookie", scope[SET_COOKIE].encode()))
            await send(message)

        await self._app(scope, receive, add_headers)
