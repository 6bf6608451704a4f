"""One operation inside one transaction of the writer: its moment, its events, its hooks.

A `Move` reads the clock once and allocates event numbers; the verbs (`intake`, `claims`, `settling`, `recovering`,
`people`) are functions that make their guarded writes through it (rule 1 of docs/explanation/reliability.md). The events are appended and the hooks told
before the commit, so that they happen with the move or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from holdfast.domain.job import JobId, Lane, Lease
from holdfast.domain.moves import Kind
from holdfast.engine.ports import Clock, Hook, MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.stores.encoding import shown, some, to_json
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sql_files import load_sql
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.times import micros, moment

SQL = load_sql("holdfast.stores.sqlite")

#: Two, so that the first leaves *job* out: `sqlite3` takes a microsecond to bind a NULL.
_EVENT = "INSERT INTO holdfast_event (seq, at, kind, moves) VALUES (?, ?, ?, ?)"
_EVENT_OF_ONE = "INSERT INTO holdfast_event (seq, at, kind, moves, job) VALUES (?, ?, ?, ?, ?)"


class Found(NamedTuple):
    """What a move needs to know of the one job it is about."""

    number: int
    uid: JobId
    phase: int
    epoch: int
    attempt: int
    max_attempts: int
    lane: int
    deadline_at: int | None
    settle_event: int | None
    dedupe: str | None

    @property
    def lease(self) -> Lease:
        """The newest one that was given out, whether or not it still holds."""
        return Lease(self.uid, self.epoch)


class Move:
    """*lanes* maps lanes to their numbers and is shared by all operations."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        lanes: LaneNumbers,
        hooks: Sequence[tuple[frozenset[Kind], Hook]] = (),
    ) -> None:
        self.connection, self.lanes = connection, lanes
        self._clock, self._hooks = clock, hooks
        self.now = micros(clock.now())
        self._seq: int | None = None
        self._told: list[MoveNotice] = []

    @property
    def mono(self) -> int:
        return int(self._clock.monotonic() * 1_000_000)

    @property
    def boot(self) -> str:
        return self._clock.boot_id()

    @cached_property
    def lane_of(self) -> Mapping[int, Lane]:
        """All lanes by their numbers, as this move found them."""
        return self.lanes.by_number(self.connection)

    def run(self, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(SQL[name], parameters)

    def rows(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        """Rows whose columns have names."""
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, parameters).fetchall()

    # -- jobs --------------------------------------------------------------------------------------------------------
    def look(self, job_id: JobId) -> Found | None:
        return next(self.jobs("uid = ?", job_id), None)

    def jobs(self, condition: str, *parameters: Any) -> Iterator[Found]:
        columns = "id, uid, phase, epoch, attempt, max_attempts, lane, deadline_at, settle_event, dedupe"
        rows = self.connection.execute(
            f"SELECT {columns} FROM holdfast_job WHERE {condition}", parameters
        ).fetchall()
        return map(Found._make, rows)

    def find(self, job_id: JobId) -> Found:
        """The same, or `UnknownJob`."""
        found = self.look(job_id)
        if found is None:
            raise UnknownJob(job_id)
        return found

    def forget_steps(self, number: int, names: Collection[str] | None) -> None:
        """Those of these *names*, or all."""
        if names is None:
            self.connection.execute("DELETE FROM holdfast_step WHERE job = ?", (number,))
        for name in names or ():
            self.connection.execute("DELETE FROM holdfast_step WHERE job = ? AND name = ?", (number, name))

    # -- events -----------------------------------------------------------------------------------------------------
    def next_seq(self) -> int:
        """The number of the next event row: known before it is written, so that jobs can point at it."""
        if self._seq is None:
            [(newest,)] = self.connection.execute("SELECT max(seq) FROM holdfast_event")
            self._seq = newest or 0
        self._seq += 1
        return self._seq

    def record(
        self,
        seq: int,
        kind: Kind,
        moves: Sequence[tuple[str, int, int, dict[str, Any] | None]],
        job: str | None = None,
    ) -> None:
        """One event row for the same move of many jobs: (uid, epoch, attempt, meta) each."""
        if not moves:
            return
        row = (seq, self.now, int(kind), to_json(moves))
        if job is None:
            self.connection.execute(_EVENT, row)
        else:
            self.connection.execute(_EVENT_OF_ONE, (*row, job))
        if any(kind in kinds for kinds, _ in self._hooks):
            self._told += [
                MoveNotice(kind, JobId(uid), epoch, attempt, shown(meta or {}))
                for uid, epoch, attempt, meta in moves
            ]

    def record_one(self, kind: Kind, lease: Lease, attempt: int, **meta: Any) -> None:
        self.record(self.next_seq(), kind, [(*lease, attempt, some(meta) or None)], job=lease.job_id)

    def record_no_job(self, kind: Kind, meta: dict[str, Any]) -> None:
        """An event of a lane, a dependency or a duty."""
        self.record(self.next_seq(), kind, [("", 0, 0, some(meta))], job="")

    # -- hooks ------------------------------------------------------------------------------------------------------
    def call_hooks(self) -> None:
        for kinds, hook in self._hooks:
            wanted = [moved for moved in self._told if moved.kind in kinds]
            if wanted:
                run_to_end(hook(self.transaction, wanted))

    @property
    def transaction(self) -> Transaction:
        """The transaction of this move, as hooks see it."""
        return _HookTransaction(self.connection, moment(self.now))


class _HookTransaction:
    dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self._connection, self._now = connection, now

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params).fetchall()

    async def now(self) -> datetime:
        return self._now
