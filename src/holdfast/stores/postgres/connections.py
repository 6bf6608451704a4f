"""Connections to PostgreSQL, one for each kind of work. They are opened when none is idle, and again when one is lost.

A claim must not wait for a long read, nor a settlement for a claim. So each kind of work ("claim", "settle" …) has one caller
at a time, and no kind waits for another. It uses the connection that it used last, or an idle one, or a new one: a quiet
process has two or three, a busy one as many as there are kinds. The pool of the driver would cost a round trip after each use
for a reset, which nothing here needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlunsplit

import asyncpg

from holdfast.errors import StoreError, UsageError
from holdfast.stores.postgres.driver_errors import DRIVER_ERRORS, LOST, readable, translate
from holdfast.stores.postgres.type_cache import Connection

T = TypeVar("T")

#: The settings of our own connections. A plan that was cached while the tables were empty must not scan them when they are
#: full. A statement is planned once: with many jobs the server would plan each claim anew, which takes as long as the claim.
#: A worker that is frozen inside a transaction must not hold a row that others need.
SETTINGS = {
    "application_name": "holdfast",
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "30s",
    "statement_timeout": "60s",
}
#: Spelled as the server does. PgBouncer compares the text, and would send the driver's ('utf-8') before each transaction.
POOLED = {"client_encoding": "UTF8"}
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
END_SECONDS = 2.0


class Connections:
    """The connections of one store to its database. Call it from one event loop."""

    def __init__(self, url: str) -> None:
        parts = readable(url)
        options = dict(parse_qsl(parts.query))
        prepare = options.pop("prepare", "on")
        if prepare not in ("on", "off"):
            raise UsageError(f"prepare is {prepare[:40]!r} in the URL of PostgreSQL; it is on or off")
        #: `?prepare=off`: behind a pooler in transaction mode nothing may be kept on a connection.
        self.pooled = prepare == "off"
        self.url = urlunsplit(parts._replace(query=urlencode(options)))
        self._lines: dict[str, _Line] = {}
        self._idle: dict[Connection, None] = {}  #: not in use, the most recently used last
        self._pending: set[asyncio.Task[Any]] = (
            set()
        )  #: being opened or closed, whether or not a caller still waits
        self.offset = "0"  #: moves the clock of tests
        self.closed = False
        #: Called first with every new connection, which may lead to another server than the one before.
        self.greet: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None

    async def connect(self, **settings: str) -> Connection:
        """Open a connection, which the caller closes.

        If the caller is cancelled meanwhile, the connection is still opened and then closed here: the driver would lose a
        socket if it was stopped in between.
        """
        making = self._begin(self._connect(settings))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_unwanted)
            raise

    async def _connect(self, settings: dict[str, str]) -> Connection:
        try:
            connection: Connection = await asyncpg.connect(
                self.url,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                connection_class=Connection,
                statement_cache_size=0 if self.pooled else 200,
                server_settings=POOLED if self.pooled else {**SETTINGS, **settings},
            )
        except (*DRIVER_ERRORS, ValueError) as error:
            raise translate(error, self.url) from error
        try:
            await self.set_offset(connection)
            if self.greet is not None:
                await self.greet(connection)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self.url) from error
            raise
        return connection

    async def set_offset(self, connection: Connection) -> None:
        if self.offset != connection.offset:
            await connection.execute(f"SET holdfast.clock_offset = '{self.offset}'")
            connection.offset = self.offset

    def take(self, name: str) -> _Taken:
        """Return a context manager for the connection of this kind of work, which has one caller at a time.

        A connection that was lost is replaced for the next caller.
        """
        if self.closed:
            raise StoreError("the store is closed; open it again to go on")
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = _Line()
        return _Taken(self, line)

    def idle(self, last: Connection | None) -> Connection | None:
        """Return the connection that was used *last* if it is idle, else any idle one, else None."""
        if last is not None and last in self._idle:
            del self._idle[last]
            if not last.is_closed():
                return last
        while self._idle:
            connection, _ = self._idle.popitem()
            if not connection.is_closed():
                return connection
        return None

    def put_back(self, connection: Connection) -> None:
        self._idle[connection] = None

    async def end(self, connection: Connection) -> None:
        """Close a connection on which a statement was interrupted. A caller that is cancelled again does not wait for it."""
        await asyncio.shield(self._begin(_end(connection)))

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    def drop_idle(self) -> None:
        """Drop the idle connections because one was lost: they lead to the same server, and callers would find that out one by
        one."""
        while self._idle:
            self._idle.popitem()[0].terminate()

    async def close(self) -> None:
        self.closed = True
        for line in self._lines.values():
            async with line.lock:
                pass  # its caller has returned the connection
        await asyncio.gather(*self._pending, return_exceptions=True)
        while self._idle:
            await _end(self._idle.popitem()[0])

    def abandon(self) -> None:
        """Close the connections without their event loop, which is gone."""
        self.closed = True
        for connection in {*self._idle, *(line.last for line in self._lines.values())}:
            if connection is not None:
                abandon(connection)
        self._idle.clear()


async def _end(connection: Connection) -> None:
    """Close a connection, and let the server stop what it does for it. The driver's own timeout does not cover that."""
    try:
        async with asyncio.timeout(END_SECONDS):
            await connection.close()
    except DRIVER_ERRORS:
        connection.terminate()


def _unwanted(making: asyncio.Task[Connection]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().terminate()


def abandon(connection: Any) -> None:
    """Close the socket of a connection whose event loop is closed, so that nothing can be awaited."""
    transport = connection._transport
    try:
        connection.terminate()  # it is marked as closed; then the loop refuses
    except RuntimeError:
        pass
    plain = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    close = getattr(plain, "_call_connection_lost", None)  # what the loop would have called
    if close is not None and getattr(plain, "_sock", None) is not None:
        close(None)


class _Line:
    """One kind of work."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last: Connection | None = None  #: the connection that its caller uses, or that the last one used


class _Taken:
    """The context manager that `Connections.take` returns. It is a class because a generator would cost more than the lock."""

    __slots__ = ("_line", "_lines")

    def __init__(self, lines: Connections, line: _Line) -> None:
        self._lines, self._line = lines, line

    async def __aenter__(self) -> Connection:
        line, lines = self._line, self._lines
        await line.lock.acquire()
        try:
            connection = lines.idle(line.last) or await lines.connect()
        except BaseException:
            line.lock.release()
            raise
        line.last = connection
        if connection.offset != lines.offset:
            try:
                await lines.set_offset(connection)
            except BaseException as error:
                await self.__aexit__(type(error), error, None)
                raise
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        line, lines = self._line, self._lines
        assert line.last is not None
        try:
            if error is None or (isinstance(error, Exception) and not isinstance(error, LOST)):
                lines.put_back(line.last)
            elif isinstance(error, asyncio.CancelledError):
                await lines.end(line.last)
            else:
                line.last.terminate()
                lines.drop_idle()
        finally:
            line.lock.release()
        if isinstance(error, DRIVER_ERRORS):
            raise translate(error, lines.url) from error
