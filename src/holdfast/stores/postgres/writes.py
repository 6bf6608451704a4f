"""How the store makes moves: on which line, in a transaction or not, and what follows a refused one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from holdfast.domain.job import Lease
from holdfast.domain.moves import Kind
from holdfast.domain.precondition import Precondition
from holdfast.engine.ports import Clock, Hook, Transaction
from holdfast.errors import LeaseLost
from holdfast.stores.postgres import outcomes
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.notifier import Notifier
from holdfast.stores.postgres.queries import Queries
from holdfast.stores.postgres.runner import Runner

T = TypeVar("T")


class Writes(Queries):
    def __init__(self, lines: Connections, clock: Clock) -> None:
        super().__init__(Runner(lines, clock))
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self._lines, self._clock = lines, clock
        self._notifier = Notifier(lines, clock)
        self._first_token: UUID | None = None  #: drawn by the server; the next ones are counted from it
        self._calls = count()

    def _move(self, connection: asyncpg.Connection[Any]) -> Move:
        return Move(connection, self._lanes, self.hooks)

    async def _write(self, line: str, operation: Callable[[Move], Awaitable[T]], *, atomic: bool = True) -> T:
        """Make moves. Without hooks a single statement needs no transaction around it (*atomic* False)."""

        async def run(connection: asyncpg.Connection[Any]) -> T:
            move = self._move(connection)
            if not atomic and not self.hooks:
                answer = await operation(move)
            else:
                async with connection.transaction():
                    answer = await operation(move)
                    await move.call_hooks()
            if move.freed:
                await move.run("grant", list(move.freed))
            return answer

        return await self._runner.run(line, run)

    async def _run(self, line: str, operation: Callable[[Move], Awaitable[T]]) -> T:
        """Statements that are repeatable one by one, and of which no hook is told: no transaction around them."""
        return await self._runner.run(line, lambda connection: operation(self._move(connection)))

    async def _write_fenced(self, lease: Lease, operation: Callable[[Move], Awaitable[None]]) -> None:
        """A write under *lease*; that one which had been reclaimed has tried it is put on record."""
        try:
            await self._run("people", operation)
        except LeaseLost:
            await self._write("people", lambda move: outcomes.refuse_once(move, lease))
            raise

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False) -> T:
        if reads:
            return await self._look(lambda connection: work(self._move(connection).transaction))
        return await self._write("people", lambda move: work(move.transaction))

    async def _token(self) -> str:
        """Names one call of a person's: sent again because its answer was lost, it is known by it."""
        if self._first_token is None:
            drawn = await self._runner.run("people", lambda db: db.fetchval("SELECT gen_random_uuid()"))
            self._first_token = UUID(str(drawn))
        return str(UUID(int=self._first_token.int ^ next(self._calls)))

    async def _named(self, precondition: Precondition) -> Precondition:
        """With a name, where the caller gave it none."""
        return (
            replace(precondition, token=await self._token()) if precondition.token is None else precondition
        )
