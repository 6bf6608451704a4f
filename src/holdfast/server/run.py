"""Runs ASGI applications by uvicorn, with bounds on their clients: the API, alone or in the event loop of a worker, and any other."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from holdfast.app import Holdfast
from holdfast.errors import UsageError
from holdfast.server.access import WithoutKey, is_loopback
from holdfast.server.assembly import build
from holdfast.server.connection import ClientConnection
from holdfast.server.headers import ALWAYS, HeaderGuard

#: How many seconds running requests have when the server stops.
GRACE_SECONDS = 2
#: How many seconds a connection may be idle between two requests.
KEEP_ALIVE_SECONDS = 15
_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on *host* and *port*; 0 chooses a free port. Raises `UsageError` when that is not possible."""
    try:
        [found, *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening = socket.create_server(found[4][:2], family=found[0], backlog=_BACKLOG)
        # Head and body are two writes: without this the body waits 40 ms for the client's acknowledgement of the head.
        # Connections inherit it; the event loop sets it itself only where a socket names its protocol.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        # The strerror of a failed bind repeats the address. An unknown host's error has a number that os.strerror does not know.
        number: int = getattr(error, "errno", 0)
        known = os.strerror(number) if number in errno.errorcode else getattr(error, "strerror", None)
        reason = known or str(error)
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host or --port"
        ) from None


def address_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn with bounds on its clients (`ClientConnection`, `HeaderGuard`).

    Args:
        site: The application to serve.
        takes_signals: Stop on SIGTERM and SIGINT. Otherwise signals belong to the process, which may also be a worker.
        most_requests: How many requests are handled at a time.
        on_ready: Called when the server listens.
        on_stop: Called when the server begins to stop.
    """

    def __init__(
        self,
        site: ASGIApp,
        *,
        takes_signals: bool = False,
        most_requests: int | None = None,
        on_ready: Callable[[], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                HeaderGuard(site, most_requests=most_requests),
                http=ClientConnection,
                ws="none",
                headers=ALWAYS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                log_config=None,
                log_level="warning",
                access_log=False,  # paths and addresses do not belong in logs; metrics count requests
                proxy_headers=False,  # a forwarded header is never trusted
                server_header=False,
            )
        )
        self.site: Any = site
        self._takes_signals, self._on_ready, self._on_stop = takes_signals, on_ready, on_stop

    def stop(self) -> None:
        """Let the server stop: it accepts no connections, and running requests have `GRACE_SECONDS`."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if not self._takes_signals:
            yield
            return
        with super().capture_signals():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._on_stop is not None:
            self._on_stop()
        await super().shutdown(sockets)


def serve(
    site: ASGIApp,
    host: str,
    port: int,
    *,
    most_requests: int | None = 1000,
    on_ready: Callable[[str], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> bool:
    """See `holdfast.server.serve`."""
    with listen(host, port) as listening:
        address = address_of(listening)
        ready = None if on_ready is None else partial(on_ready, address)
        server = Server(
            site, takes_signals=True, most_requests=most_requests, on_ready=ready, on_stop=on_stop
        )
        server.run([listening])
    return server.started


def make_server(app: Holdfast, host: str, *, no_auth: bool = False, rate: str | None = "6000/min") -> Server:
    """Return a server for the API of *app* and its dashboard.

    On loopback, programs on this machine need no key while none exists; with *no_auth* they never need one.

    Raises `UsageError` for *no_auth* on another address.
    """
    loopback = is_loopback(host)
    if no_auth and not loopback:
        raise UsageError(
            f"--no-auth is for loopback only, and {host} is not; leave it out and create a key: `holdfast keys create`"
        )
    without_key = WithoutKey.LOOPBACK if no_auth else WithoutKey.UNTIL_FIRST if loopback else WithoutKey.NEVER
    site = build(app, rate=rate, without_key=without_key, dashboard=True)
    return Server(site, on_stop=site.state.context.close)


@asynccontextmanager
async def served(
    app: Holdfast,
    listening: socket.socket,
    host: str,
    *,
    no_auth: bool = False,
    rate: str | None = "6000/min",
) -> AsyncIterator[Server]:
    """Serve the API of *app* and its dashboard on a listening socket inside the block."""
    server = make_server(app, host, no_auth=no_auth, rate=rate)
    running = asyncio.create_task(server.serve(sockets=[listening]), name="http")
    try:
        yield server
    finally:
        server.stop()
        await running
