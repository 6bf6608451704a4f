"""The database, as all parts of the store use it: an operation gets a connection, a transaction, and more tries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.ports import Hook, Transaction
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.jobs.job import Lease
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import Precondition
from holdfast.stores.postgres import outcomes
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.driver_errors import PASSING
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.notifier import Notifier

T = TypeVar("T")

#: How often an operation is sent before its error is raised. Each is repeatable (rule 3 of docs/explanation/reliability.md).
TRIES = 4
#: Seconds before the second try. Before each later one it is three times as long.
FIRST_PAUSE = 0.02

#: The server has undone the transaction, so any operation may be sent again.
UNDONE = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
_WORTH_ANOTHER = (*PASSING, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


class Database:
    """One database. Operations of one kind of work (claim, settle, enqueue, …) share a connection and wait for each other only."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url, self.clock = url, clock
        self.connections = Connections(url)
        self.lanes = LaneNumbers()
        self.notifier = Notifier(self.connections, clock)
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.extensions = StoreExtensions()
        self._first_token: UUID | None = None  #: drawn by the server; the next ones are counted from it
        self._calls = count()

    async def run(
        self,
        work: str,
        operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]],
        again: tuple[type[BaseException], ...] = _WORTH_ANOTHER,
    ) -> T:
        """Run *operation* on the connection for this kind of *work*, outside of any transaction.

        Args:
            work: The kind of work.
            operation: What to do with the connection. It must be repeatable.
            again: The driver's errors after which it is sent again.
        """
        pause = FIRST_PAUSE
        for left in range(TRIES, 0, -1):
            try:
                async with self.connections.take(work) as connection:
                    return await operation(connection)
            except StoreUnavailable as error:
                if left == 1 or not isinstance(error.__cause__, again):
                    raise
                await self.clock.sleep(pause)
                pause *= 3
        raise AssertionError("unreachable")

    # -- reading ----------------------------------------------------------------------------------------------------
    async def read(self, operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """Run *operation* on the connection for queries: a long query must not keep a claim waiting."""
        return await self.run("read", operation)

    async def search(self, operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """Run a query that is planned for exactly these values, because they decide which index is best."""

        async def search(connection: asyncpg.Connection[Any]) -> T:
            async with connection.transaction(readonly=True):
                await connection.execute("SET LOCAL plan_cache_mode = auto")
                return await operation(connection)

        return await self.read(search)

    async def rows(self, sql: str, *parameters: Any) -> list[asyncpg.Record]:
        return await self.read(lambda connection: connection.fetch(sql, *parameters))

    async def value(self, sql: str, *parameters: Any) -> Any:
        return await self.read(lambda connection: connection.fetchval(sql, *parameters))

    # -- moves ------------------------------------------------------------------------------------------------------
    def move(self, connection: asyncpg.Connection[Any]) -> Move:
        return Move(connection, self.lanes, self.hooks)

    async def write(self, work: str, operation: Callable[[Move], Awaitable[T]], *, atomic: bool = True) -> T:
        """Run *operation*, call the hooks, and return its answer after the commit.

        With *atomic* False and without hooks there is no transaction: each statement of *operation* is repeatable.
        """

        async def run(connection: asyncpg.Connection[Any]) -> T:
            move = self.move(connection)
            if not atomic and not self.hooks:
                answer = await operation(move)
            else:
                async with connection.transaction():
                    answer = await operation(move)
                    await move.call_hooks()
            if move.freed:
                await move.run("grant", list(move.freed))
            return answer

        return await self.run(work, run)

    async def run_each(self, work: str, operation: Callable[[Move], Awaitable[T]]) -> T:
        """Run statements that are repeatable one by one, without a transaction and without hooks."""
        return await self.run(work, lambda connection: operation(self.move(connection)))

    async def write_fenced(self, lease: Lease, operation: Callable[[Move], Awaitable[None]]) -> None:
        """Write under *lease*. Raise `LeaseLost`, and record the refusal, if the lease was reclaimed."""
        try:
            await self.run_each("people", operation)
        except LeaseLost:
            await self.write("people", lambda move: outcomes.refuse_once(move, lease))
            raise

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        if reads:
            return await self.read(lambda connection: work(self.move(connection).transaction))
        run = self.write if atomic else self.run_each
        return await run("people", lambda move: work(move.transaction))

    # -- calls by people --------------------------------------------------------------------------------------------
    async def token(self) -> str:
        """Return a new name for one call, which identifies it when it is sent again because its answer was lost."""
        if self._first_token is None:
            drawn = await self.run("people", lambda db: db.fetchval("SELECT gen_random_uuid()"))
            self._first_token = UUID(str(drawn))
        return str(UUID(int=self._first_token.int ^ next(self._calls)))

    async def named(self, precondition: Precondition) -> Precondition:
        """Return *precondition* with a token, a new one if the caller gave it none."""
        return replace(precondition, token=await self.token()) if precondition.token is None else precondition
