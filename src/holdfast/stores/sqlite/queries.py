"""The half of the port that only looks: rows of SQLite as the values everyone sees."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, TypeVar

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
from holdfast.engine.ports import EVERY, FIRST, Clock, Page
from holdfast.errors import StoreError
from holdfast.stores import encoding
from holdfast.stores.conditions import Condition, narrow_dead_letters
from holdfast.stores.encoding import EVENTS_PER_ROW, from_json, read_cursor, read_json, shown
from holdfast.stores.sqlite import queue_position
from holdfast.stores.sqlite.connection import connect, translate
from holdfast.stores.sqlite.move import SQL
from holdfast.stores.sqlite.phases import DEFERRED, IN_LINE
from holdfast.stores.sqlite.search import JobSearch, SqliteCondition
from holdfast.stores.sqlite.times import moment

T = TypeVar("T")

#: How many event rows are read at a time.
_ROWS = 100


class Queries:
    """Reads on a connection of its own, never in a transaction, in the caller's thread: a look is short."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.path, self._clock = path, clock
        self._reader: sqlite3.Connection | None = None

    def _open_reader(self) -> None:
        self._reader = connect(self.path)
        self._reader.row_factory = sqlite3.Row

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise StoreError("the store is not open; use `async with app:`")
        try:
            return look(self._reader)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def _rows(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        return self._look(lambda reader: reader.execute(sql, parameters).fetchall())

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None:
        rows = self._rows("SELECT * FROM holdfast_jobs WHERE id = ?", job_id)
        return self._job_row(rows[0]) if rows else None

    def _job_row(self, row: sqlite3.Row) -> JobRow:
        expires, ends = row["lease_expires_mono"], None
        if expires is not None:
            left = timedelta(microseconds=expires) - timedelta(seconds=self._clock.monotonic())
            ends = self._clock.now() + left
        return encoding.job_row(row, moment, tags=read_json(row["tags"]) or (), lease_expires_at=ends)

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        return self._look(
            lambda reader: queue_position.queue_position(reader, job_id, scopes, self._clock.now())
        )

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        before = None if after is None else read_cursor(after)
        rows, seen = self._look(
            lambda reader: JobSearch(reader, where, before, contents=contents).page(limit)
        )
        last = rows[limit - 1]["number"] if len(rows) > limit else seen
        return Page([self._job_row(row) for row in rows[:limit]], None if last is None else str(last))

    async def count(self, where: JobFilter) -> int:
        total, before = 0, None
        while True:  # in stretches: others want to use the loop too
            count, before = self._look(lambda reader: JobSearch(reader, where, before).stretch())  # noqa: B023
            total += count
            if before is None:
                return total
            await self._clock.sleep(0)

    async def counts(self) -> dict[str, int]:
        """Each count walks one narrow index."""
        counts: dict[str, int] = {}
        for state, condition in (
            (State.QUEUED, "phase = 0"), (State.QUEUED, "phase = 1"), (State.PROCESSING, "phase = 2"),
            (State.COMPLETE, "phase = 3 AND phase >= 3"), (State.FAILED, "phase = 4 AND phase >= 3"),
            (State.CANCELLED, "phase = 5 AND phase >= 3"),
        ):  # fmt: skip
            [(number,)] = self._rows(f"SELECT count(*) FROM holdfast_job WHERE {condition}")
            counts[str(state)] = counts.get(str(state), 0) + number
        return counts

    async def lanes(self) -> set[Lane]:
        return set(self._numbered_lanes().values())

    async def waiting_lanes(self) -> set[Lane]:
        rows = self._rows(SQL["waiting_lanes"])
        return {Lane(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows}

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        wanted = None if lanes is None else frozenset(lanes)
        known = {n: lane for n, lane in self._numbered_lanes().items() if wanted is None or lane in wanted}
        depths, listed = dict.fromkeys(known.values(), 0), ", ".join(map(str, known))
        for phase in (IN_LINE, DEFERRED):  # by name, so that each count walks the index of its phase
            for number, count in self._rows(
                f"SELECT lane, count(*) FROM holdfast_job WHERE phase = {phase} AND lane IN ({listed}) GROUP BY lane"
            ):
                depths[known[number]] += count
        return depths

    def _numbered_lanes(self) -> dict[int, Lane]:
        rows = self._rows("SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane")
        return {
            number: Lane(queue, task, dependency, shard, bool(fair))
            for number, queue, task, dependency, shard, fair in rows
        }

    async def workers(self) -> list[WorkerRow]:
        now, mono = self._clock.now(), int(self._clock.monotonic() * 1_000_000)
        rows = self._rows(
            """SELECT s.worker AS name, s.started_at, s.expires_mono - ?1 AS left, s.queues, s.waiting,
                      (SELECT count(*) FROM holdfast_job j WHERE j.phase = 2 AND j.session = s.id) AS leases
                 FROM holdfast_session s WHERE s.boot = ?2 AND s.expires_mono > ?1 ORDER BY s.started_at, s.id""",
            mono,
            self._clock.boot_id(),
        )
        return [
            encoding.worker_row(
                row, moment, read_json(row["queues"]), now + timedelta(microseconds=row["left"])
            )
            for row in rows
        ]

    def _has_ended(self, job_id: JobId) -> bool:
        return bool(self._rows("SELECT 1 FROM holdfast_job WHERE uid = ? AND phase >= 3", job_id))

    # -- events -----------------------------------------------------------------------------------------------------
    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        if job_id is not None:
            return self._events_of(job_id, after, limit)
        found: list[Event] = []
        seq = after // EVENTS_PER_ROW
        while True:
            rows = self._rows(
                "SELECT seq, at, kind, moves FROM holdfast_event WHERE seq >= ? ORDER BY seq LIMIT ?",
                seq,
                _ROWS,
            )
            for row in rows:
                found += [event for event in _unpack(row) if event.id > after]
                if len(found) >= limit:
                    return found[:limit]
            if len(rows) < _ROWS:
                return found
            seq = rows[-1]["seq"] + 1

    async def event_lag(self) -> timedelta:
        return timedelta()  # one writes at a time

    async def newest_event(self) -> int:
        rows = self._rows(
            "SELECT seq, json_array_length(moves) FROM holdfast_event ORDER BY seq DESC LIMIT 1"
        )
        return rows[0][0] * EVENTS_PER_ROW + rows[0][1] - 1 if rows else 0

    def _events_of(self, job_id: JobId, after: int, limit: int) -> list[Event]:
        """Found by the pointers of the job's rows, and by the index for the moves of a single job."""
        rows = self._rows(
            """WITH own (id, a, b, c) AS (SELECT id, queued_event, epoch, settle_event FROM holdfast_job WHERE uid = ?1),
                    seqs (seq) AS (SELECT a FROM own UNION SELECT b FROM own UNION SELECT c FROM own
                                   UNION SELECT epoch FROM holdfast_attempt WHERE job = (SELECT id FROM own)
                                   UNION SELECT settle_event FROM holdfast_attempt WHERE job = (SELECT id FROM own))
               SELECT seq, at, kind, moves FROM holdfast_event WHERE seq IN (SELECT seq FROM seqs) OR job = ?1 ORDER BY seq""",
            job_id,
        )
        return [e for row in rows for e in _unpack(row) if e.job_id == job_id and e.id > after][:limit]

    # -- attempts, steps, late results --------------------------------------------------------------------------------
    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        rows = self._rows(
            """SELECT a.epoch, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.failure, s.worker,
                      (SELECT lines FROM holdfast_attempt_log g WHERE g.job = a.job AND g.epoch = a.epoch) AS logs,
                      (SELECT text FROM holdfast_traceback t WHERE t.key = a.traceback) AS traceback
                 FROM (SELECT job, epoch, generation, attempt, started_at, ended_at, outcome, failure, session, traceback
                         FROM holdfast_attempt WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?1)
                       UNION ALL
                       SELECT id, epoch, generation, attempt, claimed_at, finished_at, CASE phase WHEN 3 THEN 'complete' END, NULL, session, NULL
                         FROM holdfast_job WHERE uid = ?1 AND phase IN (2, 3) AND epoch > 0) a
                 LEFT JOIN holdfast_session s ON s.id = a.session WHERE a.epoch > ?2 ORDER BY a.epoch LIMIT ?3""",
            job_id,
            after,
            limit,
        )
        return [encoding.attempt(row, moment, job_id) for row in rows]

    async def steps(self, job_id: JobId) -> dict[str, str]:
        rows = self._rows(
            "SELECT s.name, s.result FROM holdfast_step s JOIN holdfast_job j ON j.id = s.job WHERE j.uid = ? ORDER BY s.at",
            job_id,
        )
        return {row["name"]: row["result"] for row in rows}

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        rows = self._rows(
            "SELECT r.* FROM holdfast_late_result r JOIN holdfast_job j ON j.id = r.job"
            " WHERE j.uid = ? AND r.epoch > ? ORDER BY r.epoch LIMIT ?",
            job_id,
            after,
            limit,
        )
        return [encoding.late_result(row, moment, job_id) for row in rows]

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        rows = self._rows(
            "SELECT j.uid AS job_id, a.* FROM holdfast_artifact a JOIN holdfast_job j ON j.id = a.job"
            " WHERE j.uid = ? ORDER BY a.epoch, a.reference",
            job_id,
        )
        return [encoding.artifact(row, moment) for row in rows]

    # -- dead letters -------------------------------------------------------------------------------------------------
    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        condition = _dead_condition(where)
        condition.add("j.uid > ?", after or "")
        # Arguments are read last: else those of all that match would be sorted with them.
        payload = "(SELECT payload FROM holdfast_job WHERE id = c.job)" if contents else "NULL"
        sql = f"""SELECT c.*, {payload} AS payload
                    FROM (SELECT j.uid AS id, l.task, l.queue, j.owner, d.*
                            {_DEAD} WHERE {condition} ORDER BY j.uid LIMIT {condition.place(limit)}) c ORDER BY c.id"""
        rows = self._rows(sql, *condition.parameters)
        return [encoding.dead_letter(row, moment) for row in rows]

    async def count_dead_letters(self, where: DeadLetterFilter) -> int:
        condition = _dead_condition(where)
        [(count,)] = self._rows(f"SELECT count(*) {_DEAD} WHERE {condition}", *condition.parameters)
        return int(count)

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        condition = _dead_condition(where)
        sql = f"""SELECT * FROM (
                         SELECT d.fingerprint, l.task, d.code, coalesce(nullif(d.detail, ''), d.message) AS message,
                                j.uid AS sample, count(*) OVER cause AS count, min(d.at) OVER cause AS first_at,
                                max(d.at) OVER cause AS last_at,
                                row_number() OVER (cause ORDER BY d.at DESC, j.uid DESC) AS place
                           {_DEAD} WHERE {condition}
                         WINDOW cause AS (PARTITION BY d.fingerprint, l.task, d.code))
                   WHERE place = 1 ORDER BY count DESC, last_at DESC, sample DESC LIMIT {condition.place(limit)}"""
        rows = self._rows(sql, *condition.parameters)
        return [encoding.dead_letter_group(row, moment) for row in rows]

    # -- the store itself -----------------------------------------------------------------------------------------------
    async def violations(self) -> list[str]:
        """Rows whose parts disagree: what the CHECK constraints cannot say (E3)."""
        return [f"job {row[0]}: {rule}" for rule, sql in _RULES for row in self._rows(sql)]

    async def health(self) -> dict[str, Any]:
        def one(sql: str) -> Any:
            return self._rows(sql)[0][0]

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


_RULES = (
    ("is processing without a session", "SELECT uid FROM holdfast_job WHERE phase = 2 AND (session IS NULL OR claimed_at IS NULL)"),
    ("was finished before it was started", "SELECT uid FROM holdfast_job WHERE finished_at < started_at"),
    ("was started before it was queued", "SELECT uid FROM holdfast_job WHERE started_at < queued_at"),
    ("has a dead letter but is not failed", "SELECT uid FROM holdfast_job JOIN holdfast_dead_letter ON job = id WHERE phase <> 4"),
    ("shares its key with more running jobs than may be",
     "SELECT uid FROM holdfast_job WHERE phase = 2 AND key IS NOT NULL GROUP BY key HAVING count(*) > max(coalesce(key_slots, 1))"),
    ("is complete without the event of it", "SELECT uid FROM holdfast_job WHERE phase = 3 AND settle_event IS NULL"),
)  # fmt: skip

_DEAD = (
    "FROM holdfast_dead_letter d JOIN holdfast_job j ON j.id = d.job JOIN holdfast_lane l ON l.id = j.lane"
)


def _dead_condition(where: DeadLetterFilter) -> Condition:
    condition = SqliteCondition()
    narrow_dead_letters(condition, where)
    condition.among("j.uid", where.ids)
    return condition


def _unpack(row: sqlite3.Row) -> list[Event]:
    """The events that one row records."""
    return [
        Event(
            id=row["seq"] * EVENTS_PER_ROW + place,
            at=moment(row["at"]),
            kind=Kind(row["kind"]).name,
            job_id=uid,
            epoch=epoch,
            attempt=attempt,
            meta=shown(meta or {}),
        )
        for place, (uid, epoch, attempt, meta) in enumerate(from_json(row["moves"]))
    ]
