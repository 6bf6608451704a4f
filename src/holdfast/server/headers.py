"""The outermost ASGI layer of a server: it refuses malformed `Host` and `Origin` headers, adds security headers to every response,
and reports to the connection where each request begins and ends."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.server.connection import ClientConnection, connection_of

_NAME_AND_PORT = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|[A-Za-z0-9._~-]{1,255})(?::[0-9]{0,5})?")
_ORIGIN = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,30}://([^/]*)")
_NO_STORE = (b"cache-control", b"no-store")
#: Sent with every response, also with those that uvicorn makes by itself: they are in its configuration.
ALWAYS = [("x-content-type-options", "nosniff")]
_BY_SERVER = frozenset(name.encode() for name, _ in ALWAYS)
_PLAIN = [(b"content-type", b"text/plain; charset=utf-8"), _NO_STORE]


@lru_cache(1024)
def is_host(value: bytes) -> bool:
    """Return whether *value* is a name or an address, with or without a port."""
    found = _NAME_AND_PORT.fullmatch(value)
    if found is None or found[1] is None:
        return found is not None
    try:
        IPv6Address(found[1].decode())
    except ValueError:
        return False
    return True


@lru_cache(1024)
def is_origin(value: bytes) -> bool:
    """Return whether *value* is `null`, or a scheme and a host."""
    found = _ORIGIN.fullmatch(value)
    return value == b"null" or (found is not None and (not found[1] or is_host(found[1])))


class HeaderGuard:
    """Checks the headers of every request to *app*. Requests beyond *most_requests* at a time get 503."""

    def __init__(self, app: ASGIApp, *, most_requests: int | None = None) -> None:
        self._app, self._most, self._running = app, most_requests, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = connection_of(scope)
        refused, length, has_body = self._read_head(scope)
        request = 0
        if connection is not None:
            request = connection.begin(length, has_body=has_body)
            receive, send = _receiving(receive, connection), _sending(send, connection, request)
        self._running += 1
        try:
            if refused is not None:
                await _refuse(send, *refused)
            else:
                await self._app(scope, receive, _with_headers(send))
        finally:
            self._running -= 1
            if connection is not None:
                connection.end(request)

    def _read_head(self, scope: Scope) -> tuple[tuple[int, bytes] | None, int | None, bool]:
        """Return a refusal or None, the Content-Length, and whether the request has a body."""
        length: int | None = None
        has_body = False
        hosts, origins = [], []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value.strip())
            elif name == b"origin":
                origins.append(value.strip())
            elif name == b"content-length" and value.isdigit():
                length = int(value[:19])
                has_body = has_body or length > 0
            elif name == b"transfer-encoding":
                has_body = True
        return self._refusal(scope, hosts, origins), length, has_body

    def _refusal(self, scope: Scope, hosts: list[bytes], origins: list[bytes]) -> tuple[int, bytes] | None:
        if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
            return 400, b"send one Host header\n"
        if hosts and not is_host(hosts[0]):
            return 400, b"the Host header is not a host\n"
        if len(origins) > 1 or (origins and not is_origin(origins[0])):
            return 400, b"the Origin header is not an origin\n"
        if self._most is not None and self._running >= self._most:
            return 503, b"too many requests at a time; try again in a moment\n"
        return None


def _receiving(receive: Receive, connection: ClientConnection) -> Receive:
    async def receiving() -> Message:
        connection.wait_for_body()
        message = await receive()
        connection.receive(more=message.get("more_body", False))
        return message

    return receiving


def _sending(send: Send, connection: ClientConnection, request: int) -> Send:
    async def sending(message: Message) -> None:
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            connection.end(request)  # the next one may begin while the application still works on this one

    return sending


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [header for header in message.get("headers", ()) if header[0].lower() not in _BY_SERVER]
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append(_NO_STORE)
            message = {**message, "headers": headers}
        await send(message)

    return send_with_headers


async def _refuse(send: Send, status: int, text: bytes) -> None:
    headers = [*_PLAIN, (b"content-length", b"%d" % len(text))]
    # Close the connection: a malformed request has no certain meaning, and an overloaded server must shed clients.
    headers += [(b"connection", b"close")] + ([(b"retry-after", b"1")] if status == 503 else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
