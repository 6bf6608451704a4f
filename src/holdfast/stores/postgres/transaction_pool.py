"""Connections that callers hold for a transaction of their own.

To open one takes longer than most transactions, so it is kept for the next caller. A server has a hundred, so there are never
more than *MOST*.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.connections import COMMAND_SECONDS, Connections, abandon
from holdfast.stores.postgres.driver_errors import DRIVER_ERRORS, shown, translate
from holdfast.stores.postgres.type_cache import Connection

MOST = 20
KEPT = 4  #: how many stay open unused
WAIT_SECONDS = COMMAND_SECONDS


class TransactionPool:
    def __init__(self, lines: Connections) -> None:
        self._lines = lines
        self._room = asyncio.Semaphore(MOST)
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        await self._wait_for_room()
        connection: Connection | None = None
        try:
            connection = await self._take()
            async with connection.transaction():
                yield connection
        except BaseException as error:
            if connection is not None and not isinstance(error, Exception):
                connection.terminate()  # it was left in the middle of a statement, so it cannot be used again
            if isinstance(error, asyncpg.PostgresConnectionError):
                raise translate(error, self._lines.url) from error
            raise
        finally:
            try:
                if connection is not None:
                    await self._put_back(connection)
            finally:
                self._room.release()

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            where = shown(self._lines.url)
            raise StoreUnavailable(
                f"all {MOST} connections to {where} that transactions may use are in use; keep transactions short"
            ) from None

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_closed():
                continue
            try:
                # Undo now what the last caller left behind: it may be long until the next one.
                await connection.reset(timeout=5)
                await self._lines.set_offset(connection)
                return connection
            except BaseException as error:  # also when the caller is cancelled: no other code would close it
                connection.terminate()
                if not isinstance(error, DRIVER_ERRORS):
                    raise
        return await self._lines.connect(enable_seqscan="on")

    async def _put_back(self, connection: Connection) -> None:
        if connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        elif self._lines.closed or len(self._idle) >= KEPT:
            await connection.close()
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            try:
                await self._idle.pop().close(timeout=2)
            except DRIVER_ERRORS:
                continue

    def abandon(self) -> None:
        while self._idle:
            abandon(self._idle.pop())
