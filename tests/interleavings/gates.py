"""Two stores on two real connections each, which stop before every statement until they are let through.

A lone statement commits by itself in production. Here it stops once more before that commit: then the other's statement meets
rows that are changed and not committed, as it would when both are on their way at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.wiring import SystemClock

#: Statements that decide nothing: hints, lookups, and what others see.
FREE = frozenset(SQL[name] for name in ("lines", "fair_lines", "position", "grant", "twin"))
_CHANGES = ("INSERT ", "UPDATE ", "DELETE ", "FOR UPDATE")
#: How long somebody who was let through may be silent before it is asked whether they wait for a lock.
_GLANCE = 0.004


class Side:
    """One of the two: *arrived* while it stands before a statement."""

    def __init__(self) -> None:
        self.armed = False
        self.arrived = asyncio.Event()
        self._go = asyncio.Event()
        self.pids: set[int] = set()

    async def stop(self) -> None:
        if self.armed:
            self._go.clear()
            self.arrived.set()
            await self._go.wait()

    def let_through(self) -> None:
        self.arrived.clear()
        self._go.set()


class Gated:
    """A connection whose statements stop at the gate."""

    def __init__(self, connection: asyncpg.Connection[Any], side: Side) -> None:
        self._connection, self._side = connection, side

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def fetch(self, sql: str, *given: Any) -> Awaitable[Any]:
        return self._send(sql, lambda: self._connection.fetch(sql, *given))

    def fetchval(self, sql: str, *given: Any) -> Awaitable[Any]:
        return self._send(sql, lambda: self._connection.fetchval(sql, *given))

    def fetchrow(self, sql: str, *given: Any) -> Awaitable[Any]:
        return self._send(sql, lambda: self._connection.fetchrow(sql, *given))

    def execute(self, sql: str, *given: Any) -> Awaitable[Any]:
        return self._send(sql, lambda: self._connection.execute(sql, *given))

    async def _send(self, sql: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if not self._side.armed or sql in FREE or "NOTIFY" in sql:
            return await send()
        alone = not self._connection.is_in_transaction()
        if alone and not any(word in sql for word in _CHANGES):
            return await send()
        await self._side.stop()
        if not alone:
            return await send()
        async with self._connection.transaction():
            answer = await send()
            await self._side.stop()
            return answer

    def transaction(self) -> Any:
        outermost = not self._connection.is_in_transaction()
        return _Transaction(self._connection.transaction(), self._side if outermost else None)


class _Transaction:
    """Stops before its commit."""

    def __init__(self, real: Any, side: Side | None) -> None:
        self._real, self._side = real, side

    async def __aenter__(self) -> None:
        await self._real.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None and self._side is not None:
            await self._side.stop()
        await self._real.__aexit__(kind, error, trace)


async def open_gated(url: str, side: Side) -> PostgresStore:
    store = PostgresStore(url, SystemClock(), None)
    connect = store._connections.connect

    async def gated(**settings: str) -> Any:
        connection = await connect(**settings)
        side.pids.add(connection.get_server_pid())
        # Two that wait for each other need not do so for a second.
        await connection.execute("SET deadlock_timeout = '20ms'")
        return Gated(connection, side)

    store._connections.connect = gated  # type: ignore[method-assign]
    await store.open()
    return store


class Director:
    """Lets two calls through, statement by statement, in the order it is told; it sees when one waits for the other."""

    def __init__(self, url: str, sides: tuple[Side, Side]) -> None:
        self._url, self._sides = url, sides
        self._observer: asyncpg.Connection[Any] | None = None

    async def open(self) -> None:
        self._observer = await asyncpg.connect(self._url)

    async def close(self) -> None:
        assert self._observer is not None
        await self._observer.close()

    async def play(
        self, calls: tuple[Awaitable[Any], Awaitable[Any]], order: list[int]
    ) -> tuple[list[Any], list[tuple[int, list[int]]]]:
        """The answers, and for each choice what was chosen and what could have been. Beyond *order* whoever was let
        through last goes on."""
        assert self._observer is not None
        for side in self._sides:
            side.armed = True
            side.arrived.clear()
        tasks = [asyncio.ensure_future(call) for call in calls]
        trace: list[tuple[int, list[int]]] = []
        try:
            while True:
                for place in (0, 1):
                    await self._settled(place, tasks)
                able = [p for p in (0, 1) if self._sides[p].arrived.is_set() and not tasks[p].done()]
                if all(task.done() for task in tasks):
                    return [task.result() for task in tasks], trace
                if not able:
                    continue  # both wait: the server will undo one of them
                last = trace[-1][0] if trace else 0
                wanted = order[len(trace)] if len(trace) < len(order) else last
                chosen = wanted if wanted in able else able[0]
                trace.append((chosen, able))
                # Meanwhile others commit too: what goes by the order of transactions must not go by that of these two alone.
                await self._observer.execute("SELECT pg_current_xact_id()")
                self._sides[chosen].let_through()
        finally:
            for side in self._sides:
                side.armed = False
                side.let_through()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settled(self, place: int, tasks: Sequence[asyncio.Future[Any]]) -> None:
        """Until it stands at a gate, is done, or waits for a lock."""
        side, task = self._sides[place], tasks[place]
        while not side.arrived.is_set() and not task.done():
            arrival = asyncio.ensure_future(side.arrived.wait())
            await asyncio.wait((arrival, task), timeout=_GLANCE, return_when=asyncio.FIRST_COMPLETED)
            arrival.cancel()
            if side.arrived.is_set() or task.done() or await self._waits(side):
                return

    async def _waits(self, side: Side) -> bool:
        assert self._observer is not None
        sql = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY ($1) AND wait_event_type = 'Lock'"
        return await self._observer.fetchval(sql, list(side.pids)) is not None
