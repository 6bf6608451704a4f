"""One client connection: bounds on what it may send, how slowly it may send it, and how long it may leave answers unread.

uvicorn closes connections that are idle between requests. It waits forever for a request that has begun, takes in a head of
any size (with httptools), and `close()` waits forever for a client that does not read. Each such connection holds a file
descriptor and memory of the process.

`ClientConnection` stands between the transport and uvicorn's protocol and uses only asyncio's own methods. Where a request begins
and ends is reported by `holdfast.server.headers`, which finds the connection in the request's scope.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

#: The largest head of a request, in bytes. One read (up to 256 KiB) may come on top before it is noticed.
LONGEST_HEAD = 64 * 1024
#: The most that is taken in of a chunked body between two parts that the application receives: chunk headers and trailers.
LONGEST_GAP = 1024 * 1024
#: How often each connection is looked at. A head must end, and a body must move, between two looks.
LOOK_SECONDS = 15.0
#: The least speed of a body that the application waits for, in bytes per second.
LEAST_RATE = 500
#: An answer that the client does not read is dropped after this many looks without progress.
STALLED_LOOKS = 2

#: Where in a request's scope the connection is: in `scope["state"]`, under this name.
KEY = "holdfast.connection"

_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\nx-content-type-options: nosniff\r\n\r\n"
)


def connection_of(scope: MutableMapping[str, Any]) -> ClientConnection | None:
    """Return the connection that a request came by; None where another server than `serve` runs the application."""
    found = (scope.get("state") or {}).get(KEY)
    return found if isinstance(found, ClientConnection) else None


class ClientConnection(asyncio.Protocol):
    """A protocol around uvicorn's own, with whichever parser is installed."""

    inner_class: Any = AutoHTTPProtocol

    def __init__(self, *, app_state: dict[str, Any], **given: Any) -> None:
        self._inner: asyncio.Protocol = self.inner_class(app_state={**app_state, KEY: self}, **given)
        self.transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0  #: bytes taken in since a request began, received a part of its body, or ended
        self._body_left = 0  #: bytes of the body that may still come, by its Content-Length
        self._running = False  #: a request is being answered
        self._receiving = False  #: … and the application waits for its body
        self._has_body = False  #: … which has not been received to its end
        self._moves = 0  #: counts requests that began or ended
        self._arrived = 0  #: bytes since the last look
        self._writable = True
        self._last_look = -1  #: moves as of the last look, where the client was waited for then
        self._last_size, self._stalled = 0, 0

    # -- from the transport -------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._inner.connection_made(transport)
        self._set_timer()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        size = len(data)
        self._arrived += size
        of_body = min(size, self._body_left)
        self._body_left -= of_body
        self._unread += size - of_body
        self._inner.data_received(data)
        if self._unread > LONGEST_HEAD:
            # A request whose head was completed by this data begins before this call: the loop keeps the order.
            asyncio.get_running_loop().call_soon(self._refuse_long_head)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._writable = False
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self._inner.resume_writing()

    # -- from the guard -----------------------------------------------------------------------------------------------
    def begin(self, body_length: int | None, *, has_body: bool) -> int:
        """Note that a head has ended; *body_length* is its Content-Length. Return the number of this request."""
        self._moves += 1
        self._running, self._receiving, self._has_body = True, False, has_body
        self._unread, self._body_left = 0, body_length or 0
        return self._moves

    def wait_for_body(self) -> None:
        self._receiving = self._has_body

    def receive(self, *, more: bool) -> None:
        """Note that the application has received a part of the body."""
        self._receiving, self._unread = False, 0
        if not more:
            self._has_body, self._body_left = False, 0

    def end(self, request: int) -> None:
        """Note that *request* is answered. What was not received of its body is thrown away as it arrives."""
        if request != self._moves:
            return
        self._moves += 1
        self._running = self._receiving = self._has_body = False
        self._unread = 0

    # -- the ways to end it -------------------------------------------------------------------------------------------
    def abort(self) -> None:
        """Close at once. What the client has not read is dropped; `close()` would wait for it without end."""
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Close by a TCP reset, as the crash of a machine or a firewall would."""
        raw = None if self.transport is None else self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    # -- bounds -------------------------------------------------------------------------------------------------------
    def _refuse_long_head(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing() or not transport.is_reading():
            return  # where reading is paused, uvicorn holds a bounded part of the next request already
        if self._unread > (LONGEST_GAP if self._has_body else LONGEST_HEAD):
            if not self._running:
                transport.write(_TOO_LONG)
            transport.close()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        transport = self.transport
        assert transport is not None
        if self._is_stalled(transport):
            transport.abort()
            return
        if self._is_slow(transport):
            transport.close()
        self._set_timer()  # also after `close`, which ends only once the client has read the rest

    def _is_slow(self, transport: asyncio.Transport) -> bool:
        """Return whether the server has waited for this client since the last look, without a complete head or enough of a body."""
        is_waited_for = not transport.is_closing() and (
            not self._running or (self._receiving and transport.is_reading())
        )
        enough = self._receiving and self._arrived >= LEAST_RATE * LOOK_SECONDS
        is_slow = is_waited_for and self._last_look == self._moves and not enough
        self._last_look = self._moves if is_waited_for else -1
        self._arrived = 0
        return is_slow

    def _is_stalled(self, transport: asyncio.Transport) -> bool:
        """Return whether the client has read nothing of its answer for several looks."""
        size = transport.get_write_buffer_size() if transport.is_closing() or not self._writable else 0
        self._stalled = self._stalled + 1 if 0 < self._last_size <= size else 0
        self._last_size = size
        return self._stalled >= STALLED_LOOKS
