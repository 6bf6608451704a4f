"""The heads of HTTP messages: read with limits, and written without hop-by-hop headers."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

#: The longest head; also the limit of the streams that it is read from.
HEAD_BYTES = 64 << 10

_REQUEST = re.compile(rb"([A-Z]{1,20}) ([!-~]+) HTTP/1\.[01]")
_ANSWER = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])( .*)?")
_ABSOLUTE = re.compile(r"http://([^/?#]*)([^#]*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+):([0-9]{1,5})")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Hop-by-hop headers; and Alt-Svc, which would lead Chromium around the guard.
_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"}
    | {b"te", b"trailer", b"alt-svc"}
)

Header = tuple[bytes, bytes]


class BadHead(Exception):
    """The bytes are not the head of a message that the guard passes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The head of a request from Chromium."""

    method: str
    authority: str  #: host or host:port, as it was sent
    path: str  #: "" for CONNECT
    headers: list[Header]

    @property
    def tunnel(self) -> bool:
        return self.method == "CONNECT"

    @property
    def upgrade(self) -> bool:
        return any(name.lower() == b"upgrade" for name, _ in self.headers)

    @property
    def length(self) -> int:
        """The length of the body. Raises `BadHead` unless one plain Content-Length, or none, is given."""
        lengths = {value for name, value in self.headers if name.lower() == b"content-length"}
        if any(name.lower() == b"transfer-encoding" for name, _ in self.headers) or len(lengths) > 1:
            raise BadHead("no plain length")
        text = next(iter(lengths), b"0")
        if not re.fullmatch(rb"[0-9]{1,12}", text):
            raise BadHead("no plain length")
        return int(text)

    def to_origin(self, authority: str) -> bytes:
        """Return the head for the page's server.

        Its connection is used for one request only, except an upgrade.
        """
        headers = [
            (name, value)
            for name, value in self.headers
            if name.lower() not in _HOP and name.lower() != b"host"
        ]
        last = b"Upgrade" if self.upgrade else b"close"
        headers_to_send = [(b"Host", authority.encode()), *headers, (b"Connection", last)]
        return _join(f"{self.method} {self.path} HTTP/1.1".encode(), headers_to_send)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read the head of a request. Raises `BadHead`."""
    first, headers = _split(await _read(reader))
    match = _REQUEST.fullmatch(first)
    if match is None:
        raise BadHead("not a request")
    method, target = match[1].decode(), match[2].decode()
    if method == "CONNECT":
        if not _AUTHORITY.fullmatch(target):
            raise BadHead("not host:port")
        return Request(method=method, authority=target, path="", headers=headers)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise BadHead("not an absolute http:// address")
    path = absolute[2] if absolute[2].startswith("/") else f"/{absolute[2]}"
    return Request(method=method, authority=absolute[1], path=path, headers=headers)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status of a response, and its head for the browser, with `Connection: close` or `Upgrade`."""
    first, headers = _split(await _read(reader))
    match = _ANSWER.fullmatch(first)
    if match is None:
        raise BadHead("not an answer")
    status = int(match[1])
    headers = [(name, value) for name, value in headers if name.lower() not in _HOP]
    return status, _join(first, [*headers, (b"Connection", b"Upgrade" if status == 101 else b"close")])


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BadHead("no whole head") from error


def _split(head: bytes) -> tuple[bytes, list[Header]]:
    first, *lines = head[:-4].split(b"\r\n")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        # Servers disagree on how to read a bare CR or LF, or a folded line.
        if not colon or not _TOKEN.fullmatch(name) or any(char in value for char in b"\r\n\0"):
            raise BadHead("not a header")
        headers.append((name, value.strip()))
    return first, headers


def _join(first: bytes, headers: list[Header]) -> bytes:
    return b"\r\n".join([first, *(name + b": " + value for name, value in headers), b"", b""])
