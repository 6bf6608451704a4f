"""The port `JobQueries` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.engine.job_queries import Page
from holdfast.engine.ports import Row
from holdfast.jobs.forecast import Forecast, ForecastRow, make_forecast
from holdfast.jobs.job import JobFilter, JobId, JobRow, WorkerRow
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import QueuePosition
from holdfast.jobs.stats import JobStats
from holdfast.stores import encoding
from holdfast.stores.encoding import bad_cursor, read_json, value_of
from holdfast.stores.postgres import queue_position
from holdfast.stores.postgres.database import Database
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.event_numbers import OFFSET
from holdfast.stores.postgres.ids import is_uuid
from holdfast.stores.postgres.search import JobSearch, PostgresCondition
from holdfast.stores.postgres.stats import stats
from holdfast.stores.postgres.transaction import NO_JOB
from holdfast.stores.queries import SqlQueries
from holdfast.values.histogram import BOUNDS

_PLACES = """(SELECT id FROM holdfast.ready UNION ALL SELECT id FROM holdfast.deferred
              UNION ALL SELECT job_id FROM holdfast.lease UNION ALL SELECT job_id FROM holdfast.done)"""
_RULES = (
    ("is in no place at all", f"SELECT j.id FROM holdfast.job j WHERE NOT EXISTS (SELECT FROM {_PLACES} p WHERE p.id = j.id)"),
    ("is in several places at once", f"SELECT id FROM {_PLACES} p GROUP BY id HAVING count(*) > 1"),
    ("is somewhere without a job", f"SELECT p.id FROM {_PLACES} p LEFT JOIN holdfast.job j ON j.id = p.id WHERE j.id IS NULL"),
    ("has more attempts than it may", "SELECT l.job_id FROM holdfast.lease l JOIN holdfast.job j ON j.id = l.job_id WHERE l.attempt > j.max_attempts"),
    ("has a dead letter but is not failed",
     "SELECT b.job_id FROM holdfast.dead_letter b LEFT JOIN holdfast.done f ON f.job_id = b.job_id WHERE f.state IS DISTINCT FROM 4"),
    ("shares its key with more running jobs than may be",
     """SELECT min(l.job_id::text) FROM holdfast.lease l JOIN holdfast.job j ON j.id = l.job_id
         WHERE l.key IS NOT NULL GROUP BY l.key HAVING count(*) > max(coalesce(j.key_slots, 1))"""),
    ("has an attempt that ended before it began", "SELECT job_id FROM holdfast.attempt WHERE ended_at < started_at"),
)  # fmt: skip


class Queries(SqlQueries):
    _sql, _condition = SQL, PostgresCondition
    _dead = "FROM holdfast.dead_letter d JOIN holdfast.job j ON j.id = d.job_id JOIN holdfast.lane l ON l.id = d.lane"
    _dead_id = "d.job_id"
    _dead_payload = "(SELECT payload FROM holdfast.job WHERE id = c.job_id)"
    _buckets = (list(BOUNDS),)
    _rules = _RULES

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _rows(self, sql: str, *parameters: Any) -> Sequence[Row]:
        return await self._database.rows(sql, *parameters)

    async def _rows_of(self, name: str, job_id: JobId, *parameters: Any) -> Sequence[Row]:
        return await super()._rows_of(name, job_id, *parameters) if is_uuid(job_id) else []

    # -- jobs -------------------------------------------------------------------------------------------------------
    def _job_row(self, row: asyncpg.Record) -> JobRow:
        return encoding.job_row(row, tags=row["tags"], lease_expires_at=row["lease_expires_at"])

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        if not is_uuid(job_id):
            return None
        return await self._database.read(lambda db: queue_position.queue_position(db, job_id, scopes))

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        if after is not None and not is_uuid(after):
            raise bad_cursor(after)
        rows, seen = await self._database.search(
            lambda db: JobSearch(db, where, after, contents=contents).page(limit)
        )
        last = str(rows[limit - 1]["id"]) if len(rows) > limit else seen
        return Page([self._job_row(row) for row in rows[:limit]], last)

    async def count(self, where: JobFilter) -> int:
        return await self._database.search(lambda db: JobSearch(db, where).count())

    async def counts(self) -> dict[str, int]:
        [row] = await self._database.rows(
            """SELECT (SELECT count(*) FROM holdfast.ready) + (SELECT count(*) FROM holdfast.deferred) AS queued,
                      (SELECT count(*) FROM holdfast.lease) AS processing,
                      count(*) FILTER (WHERE state = 3) AS complete, count(*) FILTER (WHERE state = 4) AS failed,
                      count(*) FILTER (WHERE state = 5) AS cancelled
                 FROM holdfast.done"""
        )
        return {str(state): row[state.value] for state in State}

    async def stats(self, most: int) -> JobStats:
        return await self._database.read(lambda db: stats(db, most))

    async def forecast(self, within: timedelta, bucket: timedelta, most: int) -> Forecast:
        rows = await self._database.rows(SQL["forecast"], within, bucket, most)
        counted = (
            ForecastRow(0, row["place"], row["dependency"], row["retries"], row["delayed"], row["last"])
            for row in rows
            if row["place"] is not None
        )
        return make_forecast(rows[0]["at"], within, bucket, most, counted)

    async def workers(self) -> list[WorkerRow]:
        rows = await self._database.rows(
            """SELECT s.worker AS name, s.started_at, s.expires_at, s.queues, s.waiting, s.version,
                      (SELECT count(*) FROM holdfast.lease l WHERE l.session_id = s.id) AS leases
                 FROM holdfast.session s WHERE s.expires_at > holdfast.clock() ORDER BY s.started_at, s.id"""
        )
        return [value_of(WorkerRow, row, queues=_names(row["queues"])) for row in rows]

    # -- events -----------------------------------------------------------------------------------------------------
    async def event_lag(self) -> timedelta:
        sql = f"SELECT holdfast.clock() - at FROM holdfast.event WHERE seq >= {_HORIZON} ORDER BY seq LIMIT 1"
        return max(
            await self._database.value(sql, await self._database.value(OFFSET)) or timedelta(), timedelta()
        )

    async def _horizon(self) -> tuple[int]:
        # Read by a statement of its own: one that reads the offset after its snapshot may see one that was raised in between.
        return (await self._database.value(OFFSET),)

    def _moves_in(self, row: asyncpg.Record) -> Iterable[tuple[str, int, int, dict[str, Any] | None]]:
        # A value that all jobs of a row share is stored once, or not at all.
        ids, worker = row["job_ids"], row["worker"]
        nothing = [None] * len(ids)
        columns = (row[name] or nothing for name in ("epochs", "attempts", "durations", "metas"))
        for job_id, epoch, attempt, duration, meta in zip(map(str, ids), *columns, strict=True):
            shown = read_json(meta) or {}
            if duration is not None:
                shown["duration_ms"] = duration
            if worker is not None:
                shown["worker"] = worker
            yield "" if job_id == NO_JOB else job_id, epoch or 0, attempt or 0, shown

    # -- the store itself -----------------------------------------------------------------------------------------------
    async def health(self) -> dict[str, Any]:
        one = self._database.value
        return {
            "store": "postgresql",
            "version": await one("SHOW server_version"),
            "schema": await one(
                "SELECT string_agg(component || ' ' || number, ', ' ORDER BY component) FROM"
                " (SELECT component, max(number) AS number FROM holdfast.migration GROUP BY component) m"
            ),
            "durable": await one("SHOW synchronous_commit") != "off" and await one("SHOW fsync") == "on",
            "bytes": await one(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = 'holdfast' AND c.relkind = 'r'"
            ),
            "event_offset": await one(OFFSET),
            "oldest_transaction_s": await one(
                "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity"
                " WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
            ),
        }


#: An open transaction may still write events from this number on. $1 the event_offset, as in feed.sql.
_HORIZON = "((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $1::bigint) << 20)"


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
