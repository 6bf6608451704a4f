"""Connections that never come to the end of what they say, or say too much before they ask for anything, are closed: each
holds a file of the process, and there is an end to those and to memory.

uvicorn itself closes connections that are idle between requests; a request that has begun it waits for, however long, and
with httptools it takes in a head of any size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

#: How long a head may take, and how long a body. Looked at this often, so either may take twice as long.
PATIENCE_SECONDS = 15.0
LONGEST_HEAD = 64 * 1024

_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_Protocol: Any = object if TYPE_CHECKING else asyncio.Protocol


class Patience(_Protocol):  # type: ignore[misc]
    """One connection; stands before uvicorn's own class for one, whichever parser that has."""

    _seen: Any = None  #: the request that was read when last looked at; None: none has begun
    _look: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        request = self.cycle
        super().data_received(data)
        if self.cycle is not request:  # a head has come to its end
            self._head = 0
        elif request is None or request.response_complete:
            self._head += len(data)
            if self._head > LONGEST_HEAD and not self.transport.is_closing():
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def _wait(self) -> None:
        self._look = self.loop.call_later(PATIENCE_SECONDS, self._check)

    def _check(self) -> None:
        request = self.cycle
        is_reading = request is None or request.response_complete or request.more_body
        if is_reading and request is self._seen:
            self.transport.close()
            return
        self._seen = request
        self._wait()


class PatientProtocol(Patience, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """With the parser that is installed."""
