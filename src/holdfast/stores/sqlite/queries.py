"""The port `JobQueries` on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.job_queries import Page
from holdfast.engine.ports import Row
from holdfast.jobs.forecast import Forecast, ForecastRow, make_forecast
from holdfast.jobs.job import JobFilter, JobId, JobRow, WorkerRow
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import QueuePosition
from holdfast.jobs.stats import JobStats
from holdfast.stores import encoding
from holdfast.stores.encoding import from_json, read_cursor, read_json, value_of
from holdfast.stores.queries import SqlQueries
from holdfast.stores.sqlite import queue_position
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.search import JobSearch, SqliteCondition
from holdfast.stores.sqlite.stats import stats, stats_in_thread
from holdfast.stores.sqlite.times import micros, moment, span

_RULES = (
    ("is processing without a session", "SELECT uid FROM holdfast_job WHERE phase = 2 AND (session IS NULL OR claimed_at IS NULL)"),
    ("was finished before it was started", "SELECT uid FROM holdfast_job WHERE finished_at < started_at"),
    ("was started before it was queued", "SELECT uid FROM holdfast_job WHERE started_at < queued_at"),
    ("has a dead letter but is not failed", "SELECT uid FROM holdfast_job JOIN holdfast_dead_letter ON job = id WHERE phase <> 4"),
    ("shares its key with more running jobs than may be",
     "SELECT uid FROM holdfast_job WHERE phase = 2 AND key IS NOT NULL GROUP BY key HAVING count(*) > max(coalesce(key_slots, 1))"),
    ("is complete without the event of it", "SELECT uid FROM holdfast_job WHERE phase = 3 AND settle_event IS NULL"),
)  # fmt: skip


class Queries(SqlQueries):
    _sql, _condition = SQL, SqliteCondition
    _dead = "FROM holdfast_dead_letter d JOIN holdfast_job j ON j.id = d.job JOIN holdfast_lane l ON l.id = j.lane"
    _dead_id = "j.uid"
    _dead_payload = "(SELECT payload FROM holdfast_job WHERE id = c.job)"
    _rules = _RULES

    def __init__(self, database: Database) -> None:
        self._database, self._clock = database, database.clock

    async def _rows(self, sql: str, *parameters: Any) -> Sequence[Row]:
        return self._database.rows(sql, *parameters)

    # -- jobs -------------------------------------------------------------------------------------------------------
    def _job_row(self, row: sqlite3.Row) -> JobRow:
        expires, ends = row["lease_expires_mono"], None
        if expires is not None:
            left = timedelta(microseconds=expires) - timedelta(seconds=self._clock.monotonic())
            ends = self._clock.now() + left
        return encoding.job_row(row, tags=read_json(row["tags"]) or (), lease_expires_at=ends)

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        return self._database.read(
            lambda reader: queue_position.queue_position(reader, job_id, scopes, self._clock.now())
        )

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        before = None if after is None else read_cursor(after)
        rows, seen = self._database.read(
            lambda reader: JobSearch(reader, where, before, contents=contents).page(limit)
        )
        last = rows[limit - 1]["number"] if len(rows) > limit else seen
        return Page([self._job_row(row) for row in rows[:limit]], None if last is None else str(last))

    async def count(self, where: JobFilter) -> int:
        total, before = 0, None
        while True:  # in parts, because others use the loop too
            count, before = self._database.read(lambda reader: JobSearch(reader, where, before).stretch())  # noqa: B023
            total += count
            if before is None:
                return total
            await self._clock.sleep(0)

    async def counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for state, condition in (  # each count walks one narrow index
            (State.QUEUED, "phase = 0"), (State.QUEUED, "phase = 1"), (State.PROCESSING, "phase = 2"),
            (State.COMPLETE, "phase = 3 AND phase >= 3"), (State.FAILED, "phase = 4 AND phase >= 3"),
            (State.CANCELLED, "phase = 5 AND phase >= 3"),
        ):  # fmt: skip
            [(number,)] = self._database.rows(f"SELECT count(*) FROM holdfast_job WHERE {condition}")
            counts[str(state)] = counts.get(str(state), 0) + number
        return counts

    async def stats(self, most: int) -> JobStats:
        now = self._clock.now()
        if self._database.threads is None:
            return self._database.read(lambda reader: stats(reader, most, now))
        return await stats_in_thread(self._database.path, self._database.threads, most, now)

    async def forecast(self, within: timedelta, bucket: timedelta, most: int) -> Forecast:
        now = self._clock.now()
        asked = {"now": micros(now), "end": micros(now + within), "bucket": span(bucket), "most": most}
        rows = self._database.read(lambda reader: reader.execute(SQL["forecast"], asked).fetchall())
        counted = (
            ForecastRow(walk, place, dependency, int(retries), int(delayed), moment(last))
            for walk, place, dependency, retries, delayed, last in rows
        )
        return make_forecast(now, within, bucket, most, counted)

    async def workers(self) -> list[WorkerRow]:
        now, mono = self._clock.now(), int(self._clock.monotonic() * 1_000_000)
        rows = self._database.rows(
            """SELECT s.worker AS name, s.started_at, s.expires_mono - ?1 AS left, s.queues, s.waiting, s.version,
                      (SELECT count(*) FROM holdfast_job j WHERE j.phase = 2 AND j.session = s.id) AS leases
                 FROM holdfast_session s WHERE s.boot = ?2 AND s.expires_mono > ?1 ORDER BY s.started_at, s.id""",
            mono,
            self._clock.boot_id(),
        )
        return [
            value_of(
                WorkerRow,
                row,
                queues=_names(row["queues"]),
                expires_at=now + timedelta(microseconds=row["left"]),
            )
            for row in rows
        ]

    # -- events -----------------------------------------------------------------------------------------------------
    async def event_lag(self) -> timedelta:
        return timedelta()  # there is one writer

    async def _horizon(self) -> tuple[()]:
        return ()

    def _moves_in(self, row: sqlite3.Row) -> Iterable[tuple[str, int, int, dict[str, Any] | None]]:
        moves: list[tuple[str, int, int, dict[str, Any] | None]] = from_json(row["moves"])
        return moves

    # -- the store itself -----------------------------------------------------------------------------------------------
    async def health(self) -> dict[str, Any]:
        def one(sql: str) -> Any:
            return self._database.rows(sql)[0][0]

        return {
            "store": "sqlite",
            "version": sqlite3.sqlite_version,
            "schema": one(
                "SELECT group_concat(component || ' ' || number, ', ') FROM"
                " (SELECT component, max(number) AS number FROM holdfast_migration GROUP BY component ORDER BY component)"
            ),
            "durable": True,
            "journal_mode": one("PRAGMA journal_mode"),
            "bytes": one("PRAGMA page_count") * one("PRAGMA page_size"),
            "integrity": one("PRAGMA quick_check"),
        }


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(from_json(text))
