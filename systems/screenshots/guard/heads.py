"""The heads of requests and answers: read with bounds, written anew. Pure but for the reading."""

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
#: Between two neighbours, not between the ends; and Alt-Svc, which would lead round the guard.
_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"}
    | {b"te", b"trailer", b"alt-svc"}
)

Header = tuple[bytes, bytes]


class BadHead(Exception):
    """What came is not the head of a message that is passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    authority: str  #: host, or host:port; as it was written
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
        """Of its body. `BadHead` where that is not told once and plainly."""
        told = {value for name, value in self.headers if name.lower() == b"content-length"}
        if any(name.lower() == b"transfer-encoding" for name, _ in self.headers) or len(told) > 1:
            raise BadHead("no plain length")
        text = next(iter(told), b"0")
        if not re.fullmatch(rb"[0-9]{1,12}", text):
            raise BadHead("no plain length")
        return int(text)

    def to_origin(self, authority: str) -> bytes:
        """As the page's server wants it: it is asked once a connection, but for an upgrade."""
        kept = [
            (name, value)
            for name, value in self.headers
            if name.lower() not in _HOP and name.lower() != b"host"
        ]
        last = b"Upgrade" if self.upgrade else b"close"
        lines = [(b"Host", authority.encode()), *kept, (b"Connection", last)]
        return _written(f"{self.method} {self.path} HTTP/1.1".encode(), lines)


async def read_request(reader: asyncio.StreamReader) -> Request:
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
    """Status and head of an answer, the head as it goes to the browser: this connection is for one answer."""
    first, headers = _split(await _read(reader))
    match = _ANSWER.fullmatch(first)
    if match is None:
        raise BadHead("not an answer")
    status = int(match[1])
    kept = [(name, value) for name, value in headers if name.lower() not in _HOP]
    return status, _written(first, [*kept, (b"Connection", b"Upgrade" if status == 101 else b"close")])


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
        # A bare CR or LF, or a line that goes on in the next, is read differently by different people.
        if not colon or not _TOKEN.fullmatch(name) or any(sign in value for sign in b"\r\n\0"):
            raise BadHead("not a header")
        headers.append((name, value.strip()))
    return first, headers


def _written(first: bytes, headers: list[Header]) -> bytes:
    return b"\r\n".join([first, *(name + b": " + value for name, value in headers), b"", b""])
