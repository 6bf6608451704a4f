"""The half of the port that only looks: rows of PostgreSQL as the values everyone sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from holdfast.domain.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    Lane,
    LateResult,
    WorkerRow,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.queue_position import QueuePosition
from holdfast.domain.stats import JobStats
from holdfast.engine.ports import EVERY, FIRST, Page
from holdfast.stores import encoding
from holdfast.stores.conditions import Condition, narrow_dead_letters
from holdfast.stores.encoding import EVENTS_PER_ROW, bad_cursor, read_json, shown
from holdfast.stores.postgres import queue_position
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.event_numbers import OFFSET
from holdfast.stores.postgres.ids import is_uuid
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.move import NO_JOB
from holdfast.stores.postgres.runner import Runner
from holdfast.stores.postgres.search import JobSearch, PostgresCondition
from holdfast.stores.postgres.stats import stats
from holdfast.stores.postgres.times import moment

T = TypeVar("T")

#: How many event rows are read at a time.
_ROWS = 100


class Queries:
    """Queries on a connection of their own: a long query must not keep a claim waiting."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lanes = LaneNumbers()

    async def _look(self, look: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        return await self._runner.run("read", look)

    async def _find(self, find: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """As `_look`, with plans for just these values: it depends on them where the fewest jobs have to be looked at."""

        async def look(connection: asyncpg.Connection[Any]) -> T:
            async with connection.transaction(readonly=True):
                await connection.execute("SET LOCAL plan_cache_mode = auto")
                return await find(connection)

        return await self._look(look)

    async def _rows(self, sql: str, *parameters: Any) -> list[asyncpg.Record]:
        return await self._look(lambda db: db.fetch(sql, *parameters))

    async def _value(self, sql: str, *parameters: Any) -> Any:
        return await self._look(lambda db: db.fetchval(sql, *parameters))

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None:
        if not is_uuid(job_id):
            return None
        rows = await self._rows("SELECT * FROM holdfast.jobs WHERE id = $1", job_id)
        return _job_row(rows[0]) if rows else None

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        if not is_uuid(job_id):
            return None
        return await self._look(lambda db: queue_position.queue_position(db, job_id, scopes))

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        if after is not None and not is_uuid(after):
            raise bad_cursor(after)
        rows, seen = await self._find(lambda db: JobSearch(db, where, after, contents=contents).page(limit))
        last = str(rows[limit - 1]["id"]) if len(rows) > limit else seen
        return Page([_job_row(row) for row in rows[:limit]], last)

    async def count(self, where: JobFilter) -> int:
        return await self._find(lambda db: JobSearch(db, where).count())

    async def counts(self) -> dict[str, int]:
        [row] = await self._rows(
            """SELECT (SELECT count(*) FROM holdfast.ready) + (SELECT count(*) FROM holdfast.deferred) AS queued,
                      (SELECT count(*) FROM holdfast.lease) AS processing,
                      count(*) FILTER (WHERE state = 3) AS complete, count(*) FILTER (WHERE state = 4) AS failed,
                      count(*) FILTER (WHERE state = 5) AS cancelled
                 FROM holdfast.done"""
        )
        return {str(state): row[state.value] for state in State}

    async def stats(self, most: int) -> JobStats:
        return await self._look(lambda db: stats(db, most))

    async def lanes(self) -> set[Lane]:
        return set((await self._numbered_lanes()).values())

    async def waiting_lanes(self) -> set[Lane]:
        return {Lane(*row) for row in await self._rows(SQL["waiting_lanes"])}

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        wanted = None if lanes is None else frozenset(lanes)
        known = {
            n: lane for n, lane in (await self._numbered_lanes()).items() if wanted is None or lane in wanted
        }
        depths = dict.fromkeys(known.values(), 0)
        rows = await self._rows(
            """SELECT lane, count(*) FROM holdfast.ready WHERE lane = ANY ($1::int[]) GROUP BY lane
               UNION ALL SELECT lane, count(*) FROM holdfast.deferred WHERE lane = ANY ($1::int[]) GROUP BY lane""",
            list(known),
        )
        for number, count in rows:
            depths[known[number]] += count
        return depths

    async def _numbered_lanes(self) -> dict[int, Lane]:
        rows = await self._rows("SELECT id, queue, task, dependency, shard, fair FROM holdfast.lane")
        self._lanes.learn(rows)
        return {number: Lane(*lane) for number, *lane in rows}

    async def workers(self) -> list[WorkerRow]:
        rows = await self._rows(
            """SELECT s.worker AS name, s.started_at, s.expires_at, s.queues, s.waiting,
                      (SELECT count(*) FROM holdfast.lease l WHERE l.session_id = s.id) AS leases
                 FROM holdfast.session s WHERE s.expires_at > holdfast.clock() ORDER BY s.started_at, s.id"""
        )
        return [encoding.worker_row(row, moment, row["queues"]) for row in rows]

    async def _has_ended(self, job_id: JobId) -> bool:
        return bool(await self._value("SELECT 1 FROM holdfast.done WHERE job_id = $1", job_id))

    # -- events -----------------------------------------------------------------------------------------------------
    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        if job_id is not None:
            return await self._events_of(job_id, after, limit)
        found: list[Event] = []
        seq = after // EVENTS_PER_ROW
        offset = await self._value(OFFSET)
        while True:
            rows = await self._rows(SQL["feed"], seq, _ROWS, offset)
            for row in rows:
                found += [event for event in _unpack(row) if event.id > after]
                if len(found) >= limit:
                    return found[:limit]
            if len(rows) < _ROWS:
                return found
            seq = rows[-1]["seq"] + 1

    async def newest_event(self) -> int:
        rows = await self._rows(
            f"SELECT seq, cardinality(job_ids) FROM holdfast.event WHERE seq < {_HORIZON} ORDER BY seq DESC LIMIT 1",
            await self._value(OFFSET),
        )
        return rows[0][0] * EVENTS_PER_ROW + rows[0][1] - 1 if rows else 0

    async def event_lag(self) -> timedelta:
        sql = f"SELECT holdfast.clock() - at FROM holdfast.event WHERE seq >= {_HORIZON} ORDER BY seq LIMIT 1"
        return max(await self._value(sql, await self._value(OFFSET)) or timedelta(), timedelta())

    async def _events_of(self, job_id: JobId, after: int, limit: int) -> list[Event]:
        rows = await self._rows(SQL["job_events"], job_id) if is_uuid(job_id) else []
        return [e for row in rows for e in _unpack(row) if e.job_id == job_id and e.id > after][:limit]

    # -- attempts, steps, late results --------------------------------------------------------------------------------
    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        if not is_uuid(job_id):
            return []
        rows = await self._rows(
            """SELECT a.epoch, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.failure, s.worker,
                      (SELECT lines FROM holdfast.attempt_log g WHERE g.job_id = $1 AND g.epoch = a.epoch) AS logs,
                      (SELECT text FROM holdfast.traceback t WHERE t.key = a.traceback) AS traceback
                 FROM (SELECT epoch, generation, attempt, started_at, ended_at, outcome, failure, session_id, traceback
                         FROM holdfast.attempt WHERE job_id = $1
                       UNION ALL
                       SELECT epoch, generation, attempt, claimed_at, NULL, NULL, NULL, session_id, NULL FROM holdfast.lease WHERE job_id = $1
                       UNION ALL
                       SELECT epoch, generation, attempt, started_at, finished_at, 'complete', NULL, session_id, NULL
                         FROM holdfast.done WHERE job_id = $1 AND state = 3) a
                 LEFT JOIN holdfast.session s ON s.id = a.session_id WHERE a.epoch > $2 ORDER BY a.epoch LIMIT $3""",
            job_id,
            after,
            limit,
        )
        return [encoding.attempt(row, moment, job_id) for row in rows]

    async def steps(self, job_id: JobId) -> dict[str, str]:
        if not is_uuid(job_id):
            return {}
        rows = await self._rows(
            "SELECT name, result FROM holdfast.step WHERE job_id = $1 ORDER BY at", job_id
        )
        return {row["name"]: row["result"] for row in rows}

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        if not is_uuid(job_id):
            return []
        sql = "SELECT * FROM holdfast.late_result WHERE job_id = $1 AND epoch > $2 ORDER BY epoch LIMIT $3"
        rows = await self._rows(sql, job_id, after, limit)
        return [encoding.late_result(row, moment, job_id) for row in rows]

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        if not is_uuid(job_id):
            return []
        rows = await self._rows(
            "SELECT * FROM holdfast.artifact WHERE job_id = $1 ORDER BY epoch, reference", job_id
        )
        return [encoding.artifact(row, moment) for row in rows]

    # -- dead letters -------------------------------------------------------------------------------------------------
    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        condition = _dead_condition(where)
        if after is not None:
            if not is_uuid(after):
                raise bad_cursor(after)
            condition.add("d.job_id > ?::uuid", after)
        sql = f"""SELECT d.job_id AS id, l.task, l.queue, j.owner, d.*, {"j.payload" if contents else "NULL AS payload"}
                    {_DEAD} WHERE {condition} ORDER BY d.job_id LIMIT {condition.place(limit)}"""
        rows = await self._rows(sql, *condition.parameters)
        return [encoding.dead_letter(row, moment) for row in rows]

    async def count_dead_letters(self, where: DeadLetterFilter) -> int:
        condition = _dead_condition(where)
        return int(await self._value(f"SELECT count(*) {_DEAD} WHERE {condition}", *condition.parameters))

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        condition = _dead_condition(where)
        sql = f"""SELECT d.fingerprint, l.task, d.code, count(*) AS count, min(d.at) AS first_at, max(d.at) AS last_at,
                         (array_agg(d.job_id ORDER BY d.at DESC, d.job_id DESC))[1] AS sample,
                         (array_agg(coalesce(nullif(d.detail, ''), d.message) ORDER BY d.at DESC, d.job_id DESC))[1] AS message
                    {_DEAD} WHERE {condition}
                   GROUP BY d.fingerprint, l.task, d.code ORDER BY count DESC, last_at DESC, sample DESC
                   LIMIT {condition.place(limit)}"""
        rows = await self._rows(sql, *condition.parameters)
        return [encoding.dead_letter_group(row, moment) for row in rows]

    # -- the store itself -----------------------------------------------------------------------------------------------
    async def violations(self) -> list[str]:
        """Jobs that are in no place or in several: what constraints cannot say (E3)."""
        return [f"job {row[0]}: {rule}" for rule, sql in _RULES for row in await self._rows(sql)]

    async def health(self) -> dict[str, Any]:
        one = self._value
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


#: From this number on an open transaction may yet write. $1 the event_offset, as in feed.sql.
_HORIZON = "((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + $1::bigint) << 20)"
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

_DEAD = """FROM holdfast.dead_letter d JOIN holdfast.job j ON j.id = d.job_id
                         JOIN holdfast.lane l ON l.id = d.lane"""


def _dead_condition(where: DeadLetterFilter) -> Condition:
    condition = PostgresCondition()
    narrow_dead_letters(condition, where)
    if where.ids:
        condition.add("d.job_id = ANY (?::uuid[])", [job_id for job_id in where.ids if is_uuid(job_id)])
    return condition


def _job_row(row: asyncpg.Record) -> JobRow:
    return encoding.job_row(row, moment, tags=row["tags"], lease_expires_at=row["lease_expires_at"])


def _job_id(value: Any) -> JobId:
    text = str(value)
    return JobId("" if text == NO_JOB else text)


def _unpack(row: asyncpg.Record) -> list[Event]:
    """The events that one row records. What all its jobs have in common is kept once, or not at all."""
    ids = row["job_ids"]
    nothing = [None] * len(ids)
    epochs, attempts = row["epochs"] or nothing, row["attempts"] or nothing
    durations, metas = row["durations"] or nothing, row["metas"] or nothing
    kind, worker = Kind(row["kind"]).name, row["worker"]
    events = []
    for place, (job_id, epoch, attempt, duration, meta) in enumerate(
        zip(ids, epochs, attempts, durations, metas, strict=True)
    ):
        told = shown(read_json(meta) or {})
        if duration is not None:
            told["duration_ms"] = duration
        if worker is not None:
            told["worker"] = worker
        events.append(
            Event(
                id=row["seq"] * EVENTS_PER_ROW + place,
                at=row["at"],
                kind=kind,
                job_id=_job_id(job_id),
                epoch=epoch or 0,
                attempt=attempt or 0,
                meta=told,
            )
        )
    return events
