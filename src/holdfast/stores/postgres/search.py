"""Find the jobs that match a filter, newest first, without reading too many for one page.

There are several ways to walk through jobs: all of them, an owner's, a key's, those in a state. All have the same order, so the
first way that ends or fills the page has the answer. If none does, the page is what was found, and the next page goes on after the
last job that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import asyncpg

from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.internal import hides_internal
from holdfast.jobs.job import JobFilter
from holdfast.jobs.moves import State
from holdfast.stores.conditions import INTERNAL, MOST_READ, MOST_SEARCHED, Condition
from holdfast.stores.encoding import bad_cursor, job_columns, to_json
from holdfast.stores.postgres.ids import is_uuid

#: Ids begin with the time at which they were made, by the clock of the process that enqueued. A clock that is wrong by less than this does
#: not hide a job from a range of time.
_CLOCK_MARGIN = timedelta(days=1)

#: Where the jobs of a state are, each place ordered by id.
_PLACES = {
    State.QUEUED: "SELECT id, NULL AS error_code FROM holdfast.ready UNION ALL SELECT id, NULL FROM holdfast.deferred",
    State.PROCESSING: "SELECT job_id AS id, NULL AS error_code FROM holdfast.lease",
    State.COMPLETE: "SELECT job_id AS id, NULL AS error_code FROM holdfast.done WHERE state = 3",
    State.FAILED: "SELECT job_id AS id, error_code FROM holdfast.done WHERE state = 4",
    State.CANCELLED: "SELECT job_id AS id, NULL AS error_code FROM holdfast.done WHERE state = 5",
}
_EVERY = "SELECT * FROM holdfast.job WHERE true"
_STATE = """CASE f.state WHEN 3 THEN 'complete' WHEN 4 THEN 'failed' WHEN 5 THEN 'cancelled'
            ELSE CASE WHEN EXISTS (SELECT FROM holdfast.lease l WHERE l.job_id = w.id) THEN 'processing' ELSE 'queued' END END"""

#: Only a job that was retried can be in another lane, and often there is none.
_LANE = """CASE WHEN (SELECT EXISTS (SELECT FROM holdfast.life))
                THEN coalesce((SELECT lane FROM holdfast.life WHERE job_id = w.id), {job}.lane) ELSE {job}.lane END"""


class PostgresCondition(Condition):
    """Conditions in PostgreSQL's dialect: parameters are numbered, typed, and may be arrays."""

    sign = "$"

    def equal(self, column: str, value: str | None) -> None:
        if value is not None:
            self.add(f"{column} = ?::text", value)

    def among(self, column: str, values: Sequence[str]) -> None:
        if values:
            self.add(f"{column} = ANY (?::text[])", [str(value) for value in values])

    def identified(self, column: str, ids: Sequence[str]) -> None:
        if ids:
            self.add(f"{column} = ANY (?::uuid[])", [job_id for job_id in ids if is_uuid(job_id)])

    def behind(self, column: str, cursor: str) -> None:
        if not is_uuid(cursor):
            raise bad_cursor(cursor)
        self.add(f"{column} > ?::uuid", cursor)

    def within(self, column: str, after: datetime | None, before: datetime | None) -> None:
        if after is not None:
            self.add(f"{column} >= ?::timestamptz", after)
        if before is not None:
            self.add(f"{column} < ?::timestamptz", before)


class Found(NamedTuple):
    rows: list[asyncpg.Record]  #: of the view `holdfast.jobs`; one more than the limit, if there are more
    seen: str | None  #: the last job that was read, if there may be more after it


class Way(NamedTuple):
    walked: str  #: a statement that ends with a condition, to which the range is added
    is_place: bool = False  #: it walks the tables of the requested states, not the jobs themselves


class JobSearch:
    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        where: JobFilter,
        before: str | None = None,
        *,
        contents: bool = True,
    ) -> None:
        self._connection, self._where = connection, where
        self._columns = job_columns(contents, "lease_expires_at")
        self._stretch = PostgresCondition()
        self._bound(before)
        self._ids = self._stretch.place([job_id for job_id in where.ids if is_uuid(job_id)])
        self._owner, self._key = self._stretch.place(where.owner), self._stretch.place(where.key)
        self._hidden = ""  #: the parameter with the lanes whose jobs are left out; empty if there are none

    async def page(self, limit: int) -> Found:
        await self._find_hidden()
        best: Found | None = None
        ways = self._ways()
        for way in ways:
            found = await self._walk(way, limit, max(1, self._most(way) // len(ways)))
            if found.seen is None or len(found.rows) > limit:
                return found
            if best is None or best.seen is None or found.seen < best.seen:
                best = found
        assert best is not None
        return best

    async def count(self) -> int:
        await self._find_hidden()
        way = self._ways()[0]
        if way.is_place and (self._where.tasks or self._where.queues):
            way = Way(_EVERY)  # the lane of a job is in this table
        sql = f"SELECT count(*) FROM ({way.walked} AND {self._stretch}) w {self._kept(way)}"
        return int(await self._run(sql))

    async def _find_hidden(self) -> None:
        """Read which lanes are internal, first: if there are none, no job has to be fetched to see that it is not internal."""
        if hides_internal(self._where):
            lanes = await self._connection.fetchval(
                f"SELECT array_agg(id) FROM holdfast.lane WHERE {INTERNAL}"
            )
            self._hidden = self._stretch.place(lanes) if lanes else ""

    # -- ways ---------------------------------------------------------------------------------------------------------
    def _ways(self) -> list[Way]:
        where, ways, every = self._where, [], _EVERY
        if where.ids:
            return [Way(f"{every} AND id = ANY ({self._ids}::uuid[])")]
        if where.owner is not None:
            ways.append(Way(f"{every} AND owner = {self._owner}::text"))
        if where.key is not None:
            ways.append(Way(f"{every} AND key = {self._key}::text"))
        states = where.states or ((State.FAILED,) if where.error_code is not None else ())
        if states:
            places = " UNION ALL ".join(_PLACES[state] for state in dict.fromkeys(states))
            ways.append(Way(f"SELECT id, error_code FROM ({places}) p WHERE true", is_place=True))
        return ways or [Way(every)]  # the way with fewer rows gets further

    def _most(self, way: Way) -> int:
        """Return how many jobs are read. Jobs that a place refers to cost more, if they have to be fetched."""
        most = MOST_SEARCHED if self._where.args else MOST_READ
        return most // 3 if way.is_place and self._needs_job else most

    @property
    def _needs_job(self) -> bool:
        where = self._where
        named = (where.tasks, where.queues, where.args, where.tag, where.owner, where.key)
        return (
            any((*named, self._hidden)) or where.created_after is not None or where.created_before is not None
        )

    async def _walk(self, way: Way, limit: int, most: int) -> Found:
        stretch = f"{way.walked} AND {self._stretch} ORDER BY id DESC"
        chosen = f"SELECT w.id FROM ({stretch} LIMIT {most}) w {self._kept(way)} ORDER BY w.id DESC LIMIT {int(limit) + 1}"
        # The array makes it two steps, whatever the planner thinks: first the ids, then their rows.
        sql, values = self._stretch.fit(
            f"SELECT {self._columns} FROM holdfast.jobs WHERE id = ANY (ARRAY({chosen})) ORDER BY id DESC"
        )
        rows = await self._connection.fetch(sql, *values)
        if len(rows) > limit:
            return Found(rows, None)
        seen = await self._run(f"SELECT id FROM ({stretch} LIMIT 1 OFFSET {most - 1}) w")
        return Found(rows, None if seen is None else str(seen))

    async def _run(self, sql: str) -> Any:
        fitted, values = self._stretch.fit(sql)
        return await self._connection.fetchval(fitted, *values)

    # -- conditions ---------------------------------------------------------------------------------------------------
    def _bound(self, before: str | None) -> None:
        where = self._where
        if before is not None:
            self._stretch.add("id < ?::uuid", before)
        if where.created_before is not None:
            self._stretch.add("id < ?::uuid", _id_at(where.created_before + _CLOCK_MARGIN))
        if where.created_after is not None:
            self._stretch.add("id >= ?::uuid", _id_at(where.created_after - _CLOCK_MARGIN))

    def _kept(self, way: Way) -> str:
        """Return the condition for the jobs on a way that match. Only what it needs is read for each of them."""
        where, condition, parts = self._where, PostgresCondition(), []
        condition.parameters = self._stretch.parameters
        job = "w"
        if way.is_place and self._needs_job:
            parts.append("CROSS JOIN LATERAL (SELECT * FROM holdfast.job WHERE id = w.id OFFSET 0) j")
            job = "j"
        if way.is_place:
            condition.equal("w.error_code", where.error_code)
        elif where.states or where.error_code is not None:
            parts.append(
                "LEFT JOIN LATERAL (SELECT state, error_code FROM holdfast.done WHERE job_id = w.id OFFSET 0) f ON true"
            )
            condition.among(_STATE, where.states)
            condition.equal("f.error_code", where.error_code)
        if where.tasks or where.queues:
            lanes = PostgresCondition()
            lanes.parameters = condition.parameters
            lanes.among("task", where.tasks)
            lanes.among("queue", where.queues)
            condition.add_placed(
                f"{_LANE.format(job=job)} = ANY (ARRAY(SELECT id FROM holdfast.lane WHERE {lanes}))"
            )
        if self._hidden:
            condition.add_placed(f"{_LANE.format(job=job)} <> ALL ({self._hidden}::int[])")
        if where.owner is not None:
            condition.add_placed(f"{job}.owner = {self._owner}::text")
        if where.key is not None:
            condition.add_placed(f"{job}.key = {self._key}::text" if own_key(where.key) else "false")
        condition.within(f"{job}.created_at", where.created_after, where.created_before)
        if where.tag is not None:
            condition.add(f"?::text = ANY ({job}.tags)", where.tag)
        for name, value in where.args.items():
            condition.add(f"holdfast.argument({job}.payload, ?::text) = ?::jsonb", name, to_json(value))
        return f"{' '.join(parts)} WHERE {condition}"


def _id_at(when: datetime) -> str:
    """Return the lowest id that is made at this moment."""
    digits = f"{max(0, int(when.timestamp() * 1000)):012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"
