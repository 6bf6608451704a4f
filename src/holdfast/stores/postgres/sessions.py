"""Sessions: a worker process as the store knows it. They live by the server's clock, which all workers share."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.job import JobId, Lease, Session, SessionId
from holdfast.stores.postgres.enqueue_plan import SQL


async def open_session(
    connection: asyncpg.Connection[Any], worker: str, ttl: timedelta, queues: Collection[str] | None
) -> Session:
    number = await connection.fetchval(
        "INSERT INTO holdfast.session (worker, ttl, started_at, expires_at, queues)"
        " VALUES ($1, $2, holdfast.clock(), holdfast.clock() + $2, $3) RETURNING id",
        worker,
        ttl,
        None if queues is None else sorted(queues),
    )
    return Session(id=SessionId(number), worker=worker, ttl=ttl)


async def extend(connection: asyncpg.Connection[Any], session: Session) -> bool:
    return await connection.fetchval(SQL["extend"], session.id) is not None


async def close_session(connection: asyncpg.Connection[Any], session: Session) -> None:
    await connection.execute(
        "UPDATE holdfast.session SET expires_at = least(expires_at, holdfast.clock()) WHERE id = $1",
        session.id,
    )


async def report_waiting(connection: asyncpg.Connection[Any], session: Session, handlers: int) -> None:
    await connection.execute("UPDATE holdfast.session SET waiting = $2 WHERE id = $1", session.id, handlers)


async def held(connection: asyncpg.Connection[Any], session: Session) -> set[Lease]:
    rows = await connection.fetch(
        "SELECT job_id, epoch FROM holdfast.lease WHERE session_id = $1", session.id
    )
    return {Lease(JobId(str(row[0])), row[1]) for row in rows}
