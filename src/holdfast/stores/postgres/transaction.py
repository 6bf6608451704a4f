"""A transaction of PostgreSQL, as hooks and tables see it: ours, or one of the caller on its own connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.engine.ports import JobFacts, Row
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId, Lease
from holdfast.jobs.moves import Kind, State
from holdfast.stores.encoding import some, to_json
from holdfast.stores.postgres.ids import is_uuid, known

RECORD_ONE = """INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id, lane)
VALUES (holdfast.event_number(), holdfast.clock(), $1::smallint, ARRAY[$2::uuid], ARRAY[$3::bigint], ARRAY[$4::smallint],
        ARRAY[$5::jsonb], $2,
        coalesce((SELECT lane FROM holdfast.life WHERE job_id = $2), (SELECT lane FROM holdfast.job WHERE id = $2)))"""
#: The job id in an event of no job.
NO_JOB = "00000000-0000-0000-0000-000000000000"
_RECORD_NO_JOB = """INSERT INTO holdfast.event (seq, at, kind, job_ids, metas)
VALUES (holdfast.event_number(), holdfast.clock(), $1::smallint, ARRAY[$2::uuid], ARRAY[$3::jsonb])"""
#: Not by the view `jobs`, which reads ten times as much of each.
_JOBS = """SELECT j.id::text, n.task, n.queue, j.owner, coalesce(g.generation, 1),
       CASE WHEN f.state = 3 THEN 'complete' WHEN f.state = 4 THEN 'failed' WHEN f.state = 5 THEN 'cancelled'
            WHEN l.job_id IS NOT NULL THEN 'processing' ELSE 'queued' END
  FROM holdfast.job j LEFT JOIN holdfast.life g ON g.job_id = j.id JOIN holdfast.lane n ON n.id = coalesce(g.lane, j.lane)
  LEFT JOIN holdfast.lease l ON l.job_id = j.id LEFT JOIN holdfast.done f ON f.job_id = j.id
 WHERE j.id = ANY ($1::text[]::uuid[])"""
#: Another caller that records the same note waits for this lock, and then sees the note.
_LOCK = "SELECT 1 FROM holdfast.job WHERE id = $1::uuid FOR NO KEY UPDATE"
_FENCE = "SELECT epoch, attempt FROM holdfast.jobs WHERE id = $1::uuid"
_NOTED = "SELECT 1 FROM holdfast.event WHERE job_id = $1::uuid AND kind = $2::smallint AND metas[1] ->> 'name' = $3::text"

Notice = Callable[[Kind, Lease, int, dict[str, Any]], None]


class PostgresTransaction:
    """The port `Transaction`.

    Args:
        run: Runs one statement and returns its rows.
        notice: Is called with each event that `note` records, so that hooks are called with it.
    """

    dialect = "postgres"

    def __init__(self, run: Callable[..., Awaitable[Sequence[Row]]], notice: Notice | None = None) -> None:
        self._run, self._notice = run, notice

    async def execute(self, sql: str, *params: Any) -> Sequence[Row]:
        return await self._run(sql, *params)

    async def now(self) -> datetime:
        [(now,)] = await self._run("SELECT holdfast.clock()")
        assert isinstance(now, datetime)
        return now

    async def jobs(self, ids: Collection[JobId]) -> list[JobFacts]:
        rows = await self._run(_JOBS, [job_id for job_id in ids if is_uuid(job_id)])
        return [JobFacts._make((*facts, State(state))) for *facts, state in rows]

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        await self._run(_LOCK, known(job_id))
        rows = await self._run(_FENCE, job_id)
        if not rows:
            raise UnknownJob(job_id)
        if await self._run(_NOTED, job_id, int(kind), name):
            return False
        [(epoch, attempt)], whole = rows, {"name": name, **meta}
        await self._run(RECORD_ONE, int(kind), job_id, epoch, attempt, to_json(whole))
        if self._notice is not None:
            self._notice(kind, Lease(job_id, epoch), attempt, whole)
        return True

    async def record(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        shown = some(meta)
        await self._run(_RECORD_NO_JOB, int(kind), NO_JOB, to_json(shown))
        if self._notice is not None:
            self._notice(kind, Lease(JobId(""), 0), 0, shown)
