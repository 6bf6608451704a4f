"""The queries that SQLite and PostgreSQL answer alike. A store adds its statements, and the queries that differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from holdfast.engine.job_queries import EVERY, FIRST
from holdfast.engine.ports import Row
from holdfast.engine.tables.sql import moment
from holdfast.jobs.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobId,
    JobRow,
    LateResult,
)
from holdfast.jobs.moves import Kind
from holdfast.stores import encoding
from holdfast.stores.conditions import Condition, narrow_dead_letters
from holdfast.stores.encoding import EVENTS_PER_ROW, shown, value_of

#: How many rows of events are read at a time.
_ROWS = 100


class SqlQueries(ABC):
    """The part of the port `JobQueries` that differs between the databases only in its statements."""

    _sql: ClassVar[Mapping[str, str]]
    _condition: ClassVar[type[Condition]]
    _dead: ClassVar[str]  #: FROM: dead letters `d`, their jobs `j` and lanes `l`
    _dead_id: ClassVar[str]  #: the column of a dead letter's id
    _dead_payload: ClassVar[str]  #: the arguments of the dead letter `c`
    _buckets: ClassVar[tuple[Any, ...]] = ()  #: the last parameters of `fold`
    _rules: ClassVar[
        Sequence[tuple[str, str]]
    ]  #: what must not be true of a job, and the jobs of which it is

    @abstractmethod
    async def _rows(self, sql: str, *parameters: Any) -> Sequence[Row]:
        """Return the rows of a statement that only reads."""

    @abstractmethod
    async def _horizon(self) -> tuple[Any, ...]:
        """Return the parameters up to which, in a statement, all events are committed."""

    @abstractmethod
    def _job_row(self, row: Any) -> JobRow:
        """Return a row of the view `jobs` as a value."""

    @abstractmethod
    def _moves_in(self, row: Any) -> Iterable[tuple[str, int, int, dict[str, Any] | None]]:
        """Return the job, epoch, attempt and meta of each move that a row of events records."""

    async def _rows_of(self, name: str, job_id: JobId, *parameters: Any) -> Sequence[Row]:
        """Return the rows of a statement whose first parameter is a job."""
        return await self._rows(self._sql[name], job_id, *parameters)

    async def job(self, job_id: JobId) -> JobRow | None:
        rows = await self._rows_of("job", job_id)
        return self._job_row(rows[0]) if rows else None

    # -- events -----------------------------------------------------------------------------------------------------
    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        if job_id is not None:
            rows = await self._rows_of("job_events", job_id)
            found = [event for row in rows for event in self._events_in(row) if event.job_id == job_id]
            return [event for event in found if event.id > after][:limit]
        found = []
        seq, horizon = after // EVENTS_PER_ROW, await self._horizon()
        while True:
            rows = await self._rows(self._sql["feed"], seq, _ROWS, *horizon)
            for row in rows:
                found += [event for event in self._events_in(row) if event.id > after]
                if len(found) >= limit:
                    return found[:limit]
            if len(rows) < _ROWS:
                return found
            seq = rows[-1]["seq"] + 1

    def _events_in(self, row: Row) -> list[Event]:
        first, at, kind = row["seq"] * EVENTS_PER_ROW, moment(row["at"]), Kind(row["kind"]).name
        return [
            Event(
                id=first + place,
                at=at,
                kind=kind,
                job_id=JobId(job_id),
                epoch=epoch,
                attempt=attempt,
                meta=shown(meta or {}),
            )
            for place, (job_id, epoch, attempt, meta) in enumerate(self._moves_in(row))
        ]

    async def fold(self, after: int, limit: int) -> Sequence[Row]:
        return await self._rows(self._sql["fold"], after, limit, *await self._horizon(), *self._buckets)

    async def newest_event(self) -> int:
        rows = await self._rows(self._sql["newest_event"], *await self._horizon())
        return rows[0]["seq"] * EVENTS_PER_ROW + rows[0]["moves"] - 1 if rows else 0

    # -- what belongs to a job --------------------------------------------------------------------------------------
    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        rows = await self._rows_of("attempts", job_id, after, limit)
        return [encoding.attempt(row, job_id) for row in rows]

    async def steps(self, job_id: JobId) -> dict[str, str]:
        return {row["name"]: row["result"] for row in await self._rows_of("steps", job_id)}

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        rows = await self._rows_of("late_results", job_id, after, limit)
        return [encoding.late_result(row, job_id) for row in rows]

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        return [value_of(Artifact, row) for row in await self._rows_of("artifacts", job_id)]

    # -- dead letters -----------------------------------------------------------------------------------------------
    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        condition = self._dead_condition(where)
        if after is not None:
            condition.behind(self._dead_id, after)
        # Arguments are read last: else those of all that match would be sorted with them.
        payload = self._dead_payload if contents else "NULL"
        sql = f"""SELECT c.*, {payload} AS payload
                    FROM (SELECT {self._dead_id} AS id, l.task, l.queue, j.owner, d.* {self._dead}
                           WHERE {condition} ORDER BY {self._dead_id} LIMIT {condition.place(limit)}) c ORDER BY c.id"""
        rows = await self._rows(sql, *condition.parameters)
        return [value_of(DeadLetter, row, payload=encoding.read_json(row["payload"])) for row in rows]

    async def count_dead_letters(self, where: DeadLetterFilter) -> int:
        condition = self._dead_condition(where)
        rows = await self._rows(f"SELECT count(*) {self._dead} WHERE {condition}", *condition.parameters)
        return int(rows[0][0])

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        condition = self._dead_condition(where)
        sql = f"""SELECT * FROM (
                         SELECT d.fingerprint, l.task, d.code, coalesce(nullif(d.detail, ''), d.message) AS message,
                                {self._dead_id} AS sample, count(*) OVER cause AS count, min(d.at) OVER cause AS first_at,
                                max(d.at) OVER cause AS last_at,
                                row_number() OVER (cause ORDER BY d.at DESC, {self._dead_id} DESC) AS place
                           {self._dead} WHERE {condition}
                         WINDOW cause AS (PARTITION BY d.fingerprint, l.task, d.code)) x
                   WHERE place = 1 ORDER BY count DESC, last_at DESC, sample DESC LIMIT {condition.place(limit)}"""
        rows = await self._rows(sql, *condition.parameters)
        return [value_of(DeadLetterGroup, row) for row in rows]

    def _dead_condition(self, where: DeadLetterFilter) -> Condition:
        condition = self._condition()
        narrow_dead_letters(condition, where)
        condition.identified(self._dead_id, where.ids)
        return condition

    # -- the store itself -------------------------------------------------------------------------------------------
    async def violations(self) -> list[str]:
        """Return the broken invariants that constraints cannot express (E3)."""
        return [f"job {row[0]}: {rule}" for rule, sql in self._rules for row in await self._rows(sql)]
