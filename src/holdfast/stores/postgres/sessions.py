"""The sessions of workers. They expire by the server's clock, which all workers share."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast import __version__
from holdfast.jobs.job import JobId, Lease, Session, SessionId
from holdfast.stores.postgres.enqueue_plan import SQL

#: How long the reports of workers that are gone are kept.
_KEEP_REPORTS = timedelta(minutes=1)


async def open_session(
    connection: asyncpg.Connection[Any], worker: str, ttl: timedelta, queues: Collection[str] | None
) -> Session:
    number = await connection.fetchval(
        "INSERT INTO holdfast.session (worker, ttl, started_at, expires_at, queues, version)"
        " VALUES ($1, $2, holdfast.clock(), holdfast.clock() + $2, $3, $4) RETURNING id",
        worker,
        ttl,
        None if queues is None else sorted(queues),
        __version__,
    )
    return Session(id=SessionId(number), worker=worker, ttl=ttl)


async def extend(connection: asyncpg.Connection[Any], session: Session) -> bool:
    return await connection.fetchval(SQL["extend"], session.id) is not None


async def close_session(connection: asyncpg.Connection[Any], session: Session) -> None:
    await connection.execute(
        "UPDATE holdfast.session SET expires_at = least(expires_at, holdfast.clock()) WHERE id = $1",
        session.id,
    )
    await connection.execute("DELETE FROM holdfast.report WHERE session_id = $1", session.id)


async def forget_reports(connection: asyncpg.Connection[Any]) -> None:
    """Delete the reports of sessions that were not closed, because their workers were lost."""
    await connection.execute(
        "DELETE FROM holdfast.report WHERE ctid = ANY (ARRAY("
        "SELECT ctid FROM holdfast.report WHERE at < holdfast.clock() - $1::interval FOR UPDATE SKIP LOCKED))",
        _KEEP_REPORTS,
    )


async def report_waiting(connection: asyncpg.Connection[Any], session: Session, handlers: int) -> None:
    await connection.execute("UPDATE holdfast.session SET waiting = $2 WHERE id = $1", session.id, handlers)


async def held(connection: asyncpg.Connection[Any], session: Session) -> set[Lease]:
    rows = await connection.fetch(
        "SELECT job_id, epoch FROM holdfast.lease WHERE session_id = $1", session.id
    )
    return {Lease(JobId(str(row[0])), row[1]) for row in rows}
