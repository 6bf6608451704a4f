"""Find the jobs that match a filter, newest first, without reading too many for one page.

There are several ways to walk through jobs: all of them, an owner's, a key's, those that ended badly, those in a state with few
jobs. All have the same order, so the first way that ends or fills the page has the answer. If none does, the page is what was
found, and the next page goes on after the last job that was read.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.internal import hides_internal
from holdfast.jobs.job import JobFilter
from holdfast.stores.conditions import INTERNAL, MOST_READ, MOST_SEARCHED, Condition
from holdfast.stores.encoding import job_columns, to_json
from holdfast.stores.sqlite.phases import CANCELLED, COMPLETE, DEFERRED, FAILED, PROCESSING, READY, STATES
from holdfast.stores.sqlite.times import micros

#: Jobs are numbered as they are enqueued. A clock that was set back by less than this hides no job from a range of time.
_CLOCK_MARGIN = timedelta(hours=1)

_INDEXES = {
    READY: "holdfast_job_in_line",
    DEFERRED: "holdfast_job_deferred",
    PROCESSING: "holdfast_job_leased",
    COMPLETE: "holdfast_job_ended",
    FAILED: "holdfast_job_ended_badly",
    CANCELLED: "holdfast_job_ended_badly",
}


class SqliteCondition(Condition):
    def moment(self, value: datetime) -> int:
        return micros(value)


class Found(NamedTuple):
    rows: list[sqlite3.Row]  #: of the view `holdfast_jobs`; one more than the limit, if there are more
    seen: int | None  #: the last job that was read, if there may be more after it


class JobSearch:
    def __init__(
        self,
        reader: sqlite3.Connection,
        where: JobFilter,
        before: int | None = None,
        *,
        contents: bool = True,
    ) -> None:
        self._reader, self._where = reader, where
        self._columns = job_columns(contents, "lease_expires_mono", "number")
        self._condition = SqliteCondition()
        self._narrow()
        self._upper, self._lower = self._bounds(before)
        self._most = MOST_SEARCHED if where.args else MOST_READ

    def page(self, limit: int) -> Found:
        best: Found | None = None
        ways = self._ways()
        self._most = max(1, self._most // len(ways))
        for way in ways:
            found = self._walk(way, limit)
            if found.seen is None or len(found.rows) > limit:
                return found
            if best is None or best.seen is None or found.seen < best.seen:
                best = found
        assert best is not None
        return best

    def stretch(self) -> tuple[int, int | None]:
        """Return how many of the next jobs match, and the number before which to go on; None at the end."""
        way = self._ways()[0]
        [(count,)] = self._run(f"SELECT count(*) FROM ({self._window(way)}) j WHERE {self._condition}")
        return count, self._end(way)

    # -- ways ---------------------------------------------------------------------------------------------------------
    def _ways(self) -> list[str]:
        where, every = self._where, "holdfast_job WHERE"
        if where.ids:
            return [f"{every} uid IN (SELECT value FROM json_each({self._ids}))"]
        phases = [phase for phase, state in enumerate(STATES) if state in where.states]
        if phases and self._few(phases):
            return [f"({' UNION ALL '.join(map(_all_in, phases))}) WHERE"]
        ways = []
        if where.owner is not None:
            ways.append(f"holdfast_job INDEXED BY holdfast_job_owner WHERE owner = {self._owner}")
        if where.key is not None:
            ways.append(f"holdfast_job INDEXED BY holdfast_job_by_key WHERE key = {self._key}")
        if phases in ([FAILED], [CANCELLED]) or (not phases and where.error_code is not None):
            phase = CANCELLED if phases == [CANCELLED] else FAILED
            ways.append(
                f"holdfast_job INDEXED BY holdfast_job_ended_badly WHERE phase = {phase} AND phase >= 4"
            )
        return ways or [every]  # the way with fewer rows gets further

    def _few(self, phases: list[int]) -> bool:
        """Return whether so few jobs are in these phases that they can be sorted for a page."""
        left = self._most // 2
        for phase in phases:
            [(count,)] = self._reader.execute(
                f"SELECT count(*) FROM ({_all_in(phase).replace('*', '1')} LIMIT {left + 1})"
            )
            left -= count
            if left < 0:
                return False
        return True

    def _walk(self, way: str, limit: int) -> Found:
        chosen = f"SELECT id FROM ({self._window(way)}) j WHERE {self._condition} LIMIT {int(limit) + 1}"
        rows = self._run(
            f"SELECT {self._columns} FROM holdfast_jobs WHERE number IN ({chosen}) ORDER BY number DESC"
        )
        return Found(rows, None if len(rows) > limit else self._end(way))

    def _window(self, way: str) -> str:
        """Return the statement for the next jobs on this way, as many as are read for a page."""
        columns = "id, uid, lane, phase, owner, key, tags, created_at, error_code"
        if self._where.args:  # they may be long, and every column that is named here is read
            columns += ", payload"
        return f"SELECT {columns} FROM {self._stretch_of(way)} ORDER BY id DESC LIMIT {self._most}"

    def _stretch_of(self, way: str) -> str:
        glue = "" if way.endswith("WHERE") else " AND"
        return f"{way}{glue} id < {self._upper} AND id > {self._lower}"

    def _end(self, way: str) -> int | None:
        last = self._run(
            f"SELECT id FROM {self._stretch_of(way)} ORDER BY id DESC LIMIT 1 OFFSET {self._most - 1}"
        )
        return last[0][0] if last else None

    def _run(self, sql: str) -> list[Any]:
        return self._reader.execute(*self._condition.fit(sql)).fetchall()

    # -- conditions ---------------------------------------------------------------------------------------------------
    def _narrow(self) -> None:
        where, condition = self._where, self._condition
        # Parameters that the ways use too.
        self._ids = condition.place(to_json(where.ids))
        self._owner, self._key = condition.place(where.owner), condition.place(where.key)
        if where.states:
            listed = [str(phase) for phase, state in enumerate(STATES) if state in where.states]
            condition.add(f"j.phase IN ({', '.join(listed)})")
        if where.tasks or where.queues:
            lanes = SqliteCondition()
            lanes.parameters = condition.parameters
            lanes.among("task", where.tasks)
            lanes.among("queue", where.queues)
            condition.add_placed(f"j.lane IN (SELECT id FROM holdfast_lane WHERE {lanes})")
        if hides_internal(where):
            condition.add(f"j.lane NOT IN (SELECT id FROM holdfast_lane WHERE {INTERNAL})")
        condition.equal("j.owner", where.owner)
        condition.equal("j.error_code", where.error_code)
        condition.equal("j.key", where.key)
        if where.key is not None and own_key(where.key) is None:
            condition.add("false")
        condition.within("j.created_at", where.created_after, where.created_before)
        if where.tag is not None:
            condition.add("EXISTS (SELECT 1 FROM json_each(j.tags) WHERE value = ?)", where.tag)
        for name, value in where.args.items():
            condition.add(
                "CASE WHEN json_valid(j.payload) THEN"
                " EXISTS (SELECT 1 FROM json_each(j.payload) WHERE key = ? AND value IS json_extract(?, '$')"
                # The value of true is 1, and that of a list its text.
                "   AND replace(type, 'real', 'integer') = replace(json_type(?), 'real', 'integer')) END",
                name,
                to_json(value),
                to_json(value),
            )

    # -- ranges of time -----------------------------------------------------------------------------------------------
    def _bounds(self, before: int | None) -> tuple[int, int]:
        """Return the numbers between which those of matching jobs are."""
        upper, lower = 2**62 if before is None else before, 0
        if self._where.created_before is not None:
            upper = min(upper, self._number_at(self._where.created_before + _CLOCK_MARGIN) + 1)
        if self._where.created_after is not None:
            lower = self._number_at(self._where.created_after - _CLOCK_MARGIN)
        return upper, lower

    def _number_at(self, when: datetime) -> int:
        """Return the number of the last job that was created before *when*; 0 if there is none."""
        at = micros(when)
        low, [(high,)] = 0, self._reader.execute("SELECT coalesce(max(id), 0) FROM holdfast_job")
        while low < high:
            middle = (low + high + 1) // 2
            row = self._reader.execute(
                "SELECT id, created_at FROM holdfast_job WHERE id <= ? ORDER BY id DESC LIMIT 1", (middle,)
            ).fetchone()
            if row is None or row[1] < at:
                low = middle
            else:
                high = row[0] - 1
        return int(low)


def _all_in(phase: int) -> str:
    """Return the statement for all jobs in a phase, by an index, whose own condition has to be repeated for that."""
    more = f" AND phase >= {3 if phase == COMPLETE else 4}" if phase >= COMPLETE else ""
    return f"SELECT * FROM holdfast_job INDEXED BY {_INDEXES[phase]} WHERE phase = {phase}{more}"
