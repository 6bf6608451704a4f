"""The heartbeat's own way to PostgreSQL: an event loop and a connection that belong to the heart's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.domain.job import Session
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.enqueue_plan import SQL

T = TypeVar("T")


class PostgresHeartbeat:
    def __init__(self, url: str, offset: str) -> None:
        self._lines = Connections(url)
        self._lines.offset = offset
        self._loop: asyncio.AbstractEventLoop | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def beat(self, session: Session) -> bool:
        async def extend() -> bool:
            async with self._lines.take("heart") as connection:
                return await connection.fetchval(SQL["extend"], session.id) is not None

        return self._run(extend())

    def close(self) -> None:
        if self._loop is not None:
            self._run(self._lines.close())
            self._loop.close()
            self._loop = None
