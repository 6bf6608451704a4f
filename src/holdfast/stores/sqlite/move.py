"""One operation inside one transaction of the writer: its time, its events, its hooks.

A `Move` reads the clock once and allocates event numbers. The verbs (`intake`, `claims`, `outcomes`, `recovery`, `manual`) are
functions that make their guarded writes through it (rule 1 of docs/explanation/reliability.md). Events are appended and hooks
called before the commit, so that they happen with the move or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.engine.ports import Hook, MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId, Lane, Lease
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.stores.columns import placeholders
from holdfast.stores.encoding import shown, some, to_json
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sql_files import load_sql
from holdfast.stores.sqlite.facts import UNCOUNTED, MoveRow, end_facts
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.phases import in_states
from holdfast.stores.sqlite.times import micros
from holdfast.stores.sqlite.transaction import SqliteTransaction

T = TypeVar("T")

SQL = load_sql("holdfast.stores.sqlite", in_states, texts=placeholders(lambda column: f":{column.name}"))

#: Two statements, so that the first can leave *job* out: `sqlite3` takes a microsecond to bind a NULL.
_EVENT = "INSERT INTO holdfast_event (seq, at, kind, moves, facts) VALUES (?, ?, ?, ?, ?)"
_EVENT_OF_ONE = "INSERT INTO holdfast_event (seq, at, kind, moves, facts, job) VALUES (?, ?, ?, ?, ?, ?)"
_NOTED = "SELECT 1 FROM holdfast_event WHERE job = ? AND kind = ? AND moves ->> '$[0][3].name' = ?"


class Found(NamedTuple):
    """The row of one job, as moves need it."""

    number: int
    uid: JobId
    phase: int
    epoch: int
    attempt: int
    max_attempts: int
    lane: int
    settle_event: int | None

    @property
    def lease(self) -> Lease:
        """The newest lease of the job, whether or not it is still current."""
        return Lease(self.uid, self.epoch)


_FIND = "SELECT id AS number, uid, phase, epoch, attempt, max_attempts, lane, settle_event FROM holdfast_job WHERE uid = ?"


class Move:
    """One operation on a *connection* that is in a transaction. *lanes* is the cache that all operations share."""

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
        self._notices: list[MoveNotice] = []

    @property
    def mono(self) -> int:
        return int(self._clock.monotonic() * 1_000_000)

    @property
    def boot(self) -> str:
        return self._clock.boot_id()

    @cached_property
    def lane_of(self) -> Mapping[int, Lane]:
        """All lanes by number, read once for this move."""
        return self.lanes.by_number(self.connection)

    def run(self, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        return self.connection.execute(SQL[name], parameters)

    def rows(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        """Return rows whose columns have names."""
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, parameters).fetchall()

    def run_rows(self, name: str, /, **parameters: Any) -> list[sqlite3.Row]:
        """Run a statement by its name, and return rows whose columns have names."""
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(SQL[name], parameters).fetchall()

    # -- jobs --------------------------------------------------------------------------------------------------------
    def look(self, job_id: JobId) -> Found | None:
        rows = self.rows(_FIND, job_id)
        return Found(**dict(rows[0])) if rows else None

    def find(self, job_id: JobId) -> Found:
        """Return the job, or raise `UnknownJob`."""
        found = self.look(job_id)
        if found is None:
            raise UnknownJob(job_id)
        return found

    def lanes_of(self, ids: Sequence[JobId]) -> list[int]:
        """Return the number of the lane of each of these jobs."""
        sql = "SELECT uid, lane FROM holdfast_job WHERE uid IN (SELECT value FROM json_each(?))"
        lanes = dict(self.connection.execute(sql, (to_json(ids),)).fetchall())
        return [lanes[job_id] for job_id in ids]

    def forget_steps(self, number: int, names: Collection[str] | None) -> None:
        """Delete the results of the steps with these *names*, or of all steps if it is None."""
        if names is None:
            self.connection.execute("DELETE FROM holdfast_step WHERE job = ?", (number,))
        for name in names or ():
            self.connection.execute("DELETE FROM holdfast_step WHERE job = ? AND name = ?", (number, name))

    # -- events -----------------------------------------------------------------------------------------------------
    def next_seq(self) -> int:
        """Return the number of the next event row, so that jobs can refer to it before it is written."""
        if self._seq is None:
            [(newest,)] = self.connection.execute("SELECT max(seq) FROM holdfast_event")
            self._seq = newest or 0
        self._seq += 1
        return self._seq

    def record(
        self,
        seq: int,
        kind: Kind,
        moves: Sequence[MoveRow],
        job: str | None = None,
        facts: str | None = None,
    ) -> None:
        """Append one event row for the same move of many jobs. A move is (uid, epoch, attempt, meta)."""
        if not moves:
            return
        row = (seq, self.now, int(kind), to_json(moves), facts)
        if job is None:
            self.connection.execute(_EVENT, row)
        else:
            self.connection.execute(_EVENT_OF_ONE, (*row, job))
        if any(kind in kinds for kinds, _ in self._hooks):
            self._notices += [
                MoveNotice(kind, JobId(uid), epoch, attempt, shown(meta or {}))
                for uid, epoch, attempt, meta in moves
            ]

    def record_one(self, kind: Kind, lease: Lease, attempt: int, **meta: Any) -> None:
        moves = [(*lease, attempt, some(meta) or None)]
        facts = None if kind in UNCOUNTED else end_facts(moves, self.lanes_of([lease.job_id]))
        self.record(self.next_seq(), kind, moves, job=lease.job_id, facts=facts)

    def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        """Append an event that is no move, unless the job has one of this kind and name."""
        job = self.find(job_id)
        if self.connection.execute(_NOTED, (job_id, int(kind), name)).fetchone() is not None:
            return False
        self.record(self.next_seq(), kind, [(*job.lease, job.attempt, {"name": name, **meta})], job=job_id)
        return True

    def record_no_job(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        """Append an event of no job: of a lane, a dependency or a maintenance task."""
        self.record(self.next_seq(), kind, [("", 0, 0, some(meta))], job="")

    # -- hooks ------------------------------------------------------------------------------------------------------
    def call_hooks(self) -> None:
        for kinds, hook in self._hooks:
            wanted = [moved for moved in self._notices if moved.kind in kinds]
            if wanted:
                run_to_end(hook(self.transaction, wanted))

    @property
    def transaction(self) -> Transaction:
        """The transaction of this move, as hooks see it."""
        return SqliteTransaction(self)


class Notifies(Protocol):
    def notify(self) -> None: ...

    async def wait(self, happened: Callable[[], bool], timeout: float) -> None: ...


class RunsMoves(Protocol):
    """The file, or a database in RAM, as the parts of a store need it that use no job. `database.Database` has the contract."""

    @property
    def notifier(self) -> Notifies: ...
    async def write(self, operation: Callable[[Move], T]) -> T: ...
    async def write_work(self, operation: Callable[[Move], T]) -> T: ...
    def write_sync(self, operation: Callable[[Move], T]) -> T: ...
    def peek(self, operation: Callable[[Move], T]) -> T: ...
