"""What the tests of lanes on PostgreSQL share: stores on one database, and many jobs at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob, Session
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemIds, SystemThreads

MINUTE = timedelta(minutes=1)
_ids = SystemIds()


@asynccontextmanager
async def stores(url: str, count: int = 1) -> AsyncIterator[list[PostgresStore]]:
    """As many processes have them: each with connections, cursors and numbers of its own."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            store = PostgresStore(url, SystemClock(), SystemThreads())
            await store.open()
            stack.push_async_callback(store.close)
            opened.append(store)
        yield opened
        assert await opened[0].queries.violations() == []


async def session(store: PostgresStore) -> Session:
    return await store.open_session("worker", 10 * MINUTE)


async def enqueue(store: PostgresStore, lane: Lane, owners: Sequence[str | None], **spec: Any) -> list[JobId]:
    jobs = [NewJob(_ids.job_id(), "{}", JobSpec(lane=lane, owner=owner, **spec)) for owner in owners]
    return [answer.id for answer in await store.enqueue(jobs)]


def owners_of(claimed: Sequence[Claimed]) -> list[str]:
    return [str(one.owner) for one in claimed]


def fill(url: str, lane: Lane, count: int, owner: str = "NULL") -> None:
    """Put so many jobs into line in one go, with ids in the order of time as ours are. *owner* is SQL over *i*."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT holdfast.lane_number(%s, %s, %s, %s, %s)", lane).fetchone()
        assert found is not None
        connection.execute(
            f"""WITH j AS (
                INSERT INTO holdfast.job (id, created_at, queued_seq, lane, prio, max_attempts, max_crashes, version, payload, owner)
                SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' ||
                        substr(md5(i::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid, clock_timestamp(), 1, %s, 0, 3, 3, 1, '{{}}', {owner}
                  FROM generate_series(1, %s) i RETURNING id, lane)
                INSERT INTO holdfast.ready (ord, id, lane, prio, attempt, crashes, generation)
                SELECT holdfast.place(clock_timestamp()), id, lane, 0, 0, 0, 1 FROM j""".encode(),
            (found[0], count),
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE holdfast.ready, holdfast.job")


def report_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection of a store report what it has read after each query, so that `pages_of_claims` can count it."""
    fetch = asyncpg.Connection.fetch

    async def fetch_and_report(connection: Any, *given: Any, **named: Any) -> Any:
        rows = await fetch(connection, *given, **named)
        await connection.execute("SELECT pg_stat_force_next_flush()")
        return rows

    monkeypatch.setattr(asyncpg.Connection, "fetch", fetch_and_report)


async def pages_of_claims(
    url: str, store: PostgresStore, holder: Session, lanes: Sequence[Lane], times: int
) -> int:
    """Claim 50 jobs this many times; how many pages of our tables and their indexes that has looked at."""
    before = _pages_read(url)
    for _ in range(times):
        assert len(await store.claim(holder, lanes, 50)) == 50
    return _pages_read(url) - before


def _pages_read(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))"
            " FROM pg_statio_all_tables WHERE schemaname = 'holdfast'"
        ).fetchone()
        assert found is not None
        return int(found[0])
