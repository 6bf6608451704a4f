"""Extend sessions in the heartbeat thread, by an event loop and a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.jobs.job import Session
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.sessions import extend

T = TypeVar("T")


class PostgresHeartbeat:
    """The port `HeartbeatConnection`."""

    def __init__(self, url: str, offset: str) -> None:
        self._connections = Connections(url)
        self._connections.offset = offset
        self._loop: asyncio.AbstractEventLoop | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def beat(self, session: Session) -> bool:
        async def beat() -> bool:
            async with self._connections.take("heart") as connection:
                return await extend(connection, session)

        return self._run(beat())

    def close(self) -> None:
        if self._loop is not None:
            self._run(self._connections.close())
            self._loop.close()
            self._loop = None
