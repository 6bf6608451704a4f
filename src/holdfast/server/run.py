"""Runs ASGI applications by uvicorn, with bounds on clients: the API alone or beside a worker in the same event loop, and the
sites of others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from holdfast.app import Holdfast
from holdfast.errors import UsageError
from holdfast.logs import Log
from holdfast.server.access import WithoutKey, is_loopback
from holdfast.server.assembly import build
from holdfast.server.connection import ClientConnection
from holdfast.server.headers import ALWAYS, HeaderGuard

#: How long requests that are under way may take when the server is told to stop.
GRACE_SECONDS = 2
#: How long a connection may be idle between two requests.
KEEP_ALIVE_SECONDS = 15
_BACKLOG = 2048

log = Log("holdfast.server")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there (0: on a free port); a line for people where that cannot be."""
    try:
        [found, *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listening = socket.create_server(found[4][:2], family=found[0], backlog=_BACKLOG)
        # Head and body are two writes: without this the body waits 40 ms for the client's acknowledgement of the head.
        # Connections inherit it; the event loop sets it itself only where a socket names its protocol.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --host or --port"
        ) from None


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Connections(set[Any]):
    """Those that are open, as uvicorn keeps them; tells when the last has gone."""

    def __init__(self) -> None:
        super().__init__()
        self._fewer = asyncio.Event()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        self._fewer.set()

    async def gone(self) -> None:
        while self:
            self._fewer.clear()
            await self._fewer.wait()


class Server(uvicorn.Server):
    """uvicorn with bounds on its clients (`ClientConnection`, `HeaderGuard`). Stops at once when told to, not at the next tenth of a second.

    With *takes_signals* it stops by SIGTERM and SIGINT. Otherwise signals belong to the process, which may be a worker too.
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
                log_config=None,
                log_level="warning",
                access_log=False,  # paths and addresses are not for logs; metrics count
                proxy_headers=False,  # a forwarded header is never trusted
                server_header=False,
            )
        )
        self.site: Any = site
        self._takes_signals, self._on_ready, self._on_stop = takes_signals, on_ready, on_stop
        self._stopped = asyncio.Event()
        self._connections = self.server_state.connections = _Connections()

    def stop(self) -> None:
        if self._on_stop is not None:
            self._on_stop()
        self.should_exit = True
        self._stopped.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if not self._takes_signals:
            yield
            return
        with super().capture_signals():
            yield

    def handle_exit(self, number: int, frame: FrameType | None) -> None:
        super().handle_exit(number, frame)
        # A signal handler does not wake the event loop by itself.
        self._loop.call_soon_threadsafe(self.stop)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started and self._on_ready is not None:
            self._on_ready()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # once a second it writes the header `Date` anew
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: accept no connections, close idle ones, give running requests time, then cancel those that are left."""
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = self.server_state.tasks
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while tasks:
                    await asyncio.wait(set(tasks))
                await self._connections.gone()  # what was written goes out
        except TimeoutError:
            log.warning("request.cancelled", requests=len(tasks))
            for task in tasks:
                task.cancel()
        await self.lifespan.shutdown()


def serve(
    site: ASGIApp,
    host: str,
    port: int,
    *,
    most_requests: int | None = 1000,
    on_ready: Callable[[str], None] | None = None,
) -> bool:
    """See `holdfast.server.serve`."""
    with listen(host, port) as listening:
        address = address_of(listening)
        ready = None if on_ready is None else partial(on_ready, address)
        server = Server(site, takes_signals=True, most_requests=most_requests, on_ready=ready)
        server.run([listening])
    return server.started


def make_server(app: Holdfast, host: str, *, no_auth: bool = False, rate: str | None = "6000/min") -> Server:
    """On loopback, programs on this machine need no key until there is one; with *no_auth* they never do."""
    loopback = is_loopback(host)
    if no_auth and not loopback:
        raise UsageError(
            f"--no-auth is for loopback only, and {host} is not; drop it and make a key: `holdfast keys create`"
        )
    without_key = WithoutKey.LOOPBACK if no_auth else WithoutKey.UNTIL_FIRST if loopback else WithoutKey.NEVER
    site = build(app, rate=rate, without_key=without_key)
    return Server(site, on_stop=site.state.door.close)


@asynccontextmanager
async def served(
    app: Holdfast,
    listening: socket.socket,
    host: str,
    *,
    no_auth: bool = False,
    rate: str | None = "6000/min",
) -> AsyncIterator[Server]:
    """Inside the block the API is answered."""
    server = make_server(app, host, no_auth=no_auth, rate=rate)
    running = asyncio.create_task(server.serve(sockets=[listening]), name="http")
    try:
        yield server
    finally:
        server.stop()
        await running
