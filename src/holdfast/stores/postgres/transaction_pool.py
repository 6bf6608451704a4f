"""Connections that callers hold for a transaction of their own.

To open one takes longer than most transactions, and a server has a hundred: they are kept for the next caller, and there
are never more than *MOST* of them.
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
KEPT = 4  #: when nobody needs them
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
                connection.terminate()  # left in the middle of something: nobody may use it again
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
                # The next caller undoes what the last one left behind: it may be long until then.
                await connection.reset(timeout=5)
                await self._lines.set_offset(connection)
                return connection
            except BaseException as error:  # also of a caller who gives up meanwhile: nobody else has it now
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
