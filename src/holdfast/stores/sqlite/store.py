"""The SQLite store: the port on one side, the writer and a reader on the other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.domain.job import (
    Attempt,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Enqueued,
    Event,
    Expired,
    JobFilter,
    JobId,
    JobRow,
    Lane,
    LateResult,
    Lease,
    NewJob,
    Session,
    SessionId,
    Settlement,
)
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Answer, Clock, Heart, Hook, Page, Reclaim, Retention, Threads
from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.sqlite.connection import connect, translate
from holdfast.stores.sqlite.migrate import check, migrate
from holdfast.stores.sqlite.moves import LaneNumbers, Move
from holdfast.stores.sqlite.rows import Reader
from holdfast.stores.sqlite.times import micros, span
from holdfast.stores.sqlite.writer import Writer

T = TypeVar("T")

#: The probe for other processes' work: as quick as this while jobs flow, up to this when nothing happens.
PROBE_QUICK, PROBE_IDLE = 0.002, 0.010
#: How long after the last work the probe stays quick.
QUICK_FOR = 2.0


class SqliteStore:
    """One file. *threads* None runs every write inline, in the caller's own thread (the simulator does)."""

    def __init__(self, path: str, clock: Clock, threads: Threads | None) -> None:
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.path, self._clock, self._threads = path, clock, threads
        self._lanes = LaneNumbers()
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._probe: sqlite3.Connection | None = None
        self._bell: asyncio.Event | None = None
        self._busy_until = 0.0

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        self.open_sync()

    def open_sync(self) -> None:
        if self._writer is not None:
            return
        connection = connect(self.path)
        try:
            migrate(connection, self.path)
            check(connection, self.path)
            self._lanes.remember(connection)
        except BaseException:
            connection.close()
            raise
        self._reader = Reader(connect(self.path), self._clock)
        self._probe = connect(self.path)
        self._writer = Writer(connection, self.path, self._threads)

    async def close(self) -> None:
        writer, reader, probe = self._writer, self._reader, self._probe
        self._writer = self._reader = self._probe = None
        if writer is not None and reader is not None and probe is not None:
            reader._db.close()
            probe.close()
            writer.close()

    async def migrate(self) -> list[str]:
        connection = connect(self.path)
        try:
            return migrate(connection, self.path)
        finally:
            connection.close()

    # -- writing ----------------------------------------------------------------------------------------------------
    def _move(self, operation: Callable[[Move], T]) -> Callable[[sqlite3.Connection], T]:
        def run(connection: sqlite3.Connection) -> T:
            move = Move(connection, self._clock, self._lanes, self.hooks)
            answer = operation(move)
            move.tell_hooks()
            return answer

        return run

    async def _write(self, operation: Callable[[Move], T]) -> T:
        if self._writer is None:
            raise StoreError("the store is not open; use `async with app:`")
        return await self._writer.run(self._move(operation))

    async def _write_work(self, operation: Callable[[Move], T]) -> T:
        """A write that may put work in line: whoever waits for work in this process is woken."""
        answer = await self._write(operation)
        self._ring()
        return answer

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        return await self._write_work(lambda move: move.enqueue(jobs))

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        self.open_sync()
        assert self._writer is not None
        return self._writer.run_sync(self._move(lambda move: move.enqueue(jobs)))

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.callers import on_callers_connection

        return await on_callers_connection(connection, self._move(lambda move: move.enqueue(jobs)), self.path)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.callers import on_callers_connection_sync

        return on_callers_connection_sync(connection, self._move(lambda move: move.enqueue(jobs)), self.path)

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._write(lambda move: move.reject(job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        due = await self._write_work(lambda move: move.promote(limit))
        return None if due is None else timedelta(microseconds=max(due, 0))

    async def open_session(self, worker: str, ttl: timedelta) -> Session:
        def add(move: Move) -> int:
            row = move.connection.execute(
                "INSERT INTO session (worker, boot, ttl, started_at, expires_mono) VALUES (?, ?, ?, ?, ?) RETURNING id",
                (worker, self._clock.boot_id(), span(ttl), move.now, move.mono + span(ttl)),
            ).fetchone()
            return int(row[0])

        return Session(id=SessionId(await self._write(add)), worker=worker, ttl=ttl)

    async def extend(self, session: Session) -> bool:
        return await self._write(lambda move: self._extend(move, session))

    def _extend(self, move: Move, session: Session) -> bool:
        return (
            move.run("extend", session=session.id, boot=self._clock.boot_id(), mono=move.mono).rowcount == 1
        )

    async def close_session(self, session: Session) -> None:
        await self._write(
            lambda move: move.connection.execute(
                "UPDATE session SET expires_mono = 0 WHERE id = ?", (session.id,)
            )
        )

    async def held(self, session: Session) -> set[Lease]:
        sql = "SELECT uid, epoch FROM job WHERE phase = 2 AND session = ?"
        return self._read(lambda r: {Lease(uid, epoch) for uid, epoch in r._db.execute(sql, (session.id,))})

    async def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        if not self._has_work(lanes):
            return []
        claimed = await self._write(lambda move: move.claim(session, lanes, limit))
        if claimed:
            self._busy_until = self._clock.monotonic() + QUICK_FOR
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._write_work(lambda move: move.settle(settlements))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """A connection that holds the write lock of the file until the block is left: keep it short."""
        connection = connect(self.path)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        finally:
            connection.close()  # without a commit this rolls back

    async def complete_in(
        self, connection: Any, lease: Lease, result: str | None, duration: timedelta
    ) -> None:
        self._move(lambda move: move.complete_in(lease, result, duration))(connection)

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        await self._fenced(lease, lambda move: move.record_step(lease, name, result))

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        await self._fenced(lease, lambda move: move.record_progress(lease, percent, message))

    async def _fenced(self, lease: Lease, operation: Callable[[Move], None]) -> None:
        try:
            await self._write(operation)
        except LeaseLost:
            await self._write(lambda move: move.refuse_once(lease))
            raise

    async def expired(self, limit: int) -> list[Expired]:
        rows = self._read(lambda reader: Move(reader._db, self._clock, self._lanes).expired(limit))
        lanes = self._read(lambda reader: self._lanes.by_number(reader._db))
        return [
            Expired(
                Lease(uid, epoch), lanes[lane], attempt, most, crashes, max_crashes, worker, bool(overran)
            )
            for uid, epoch, lane, attempt, most, crashes, max_crashes, worker, overran in rows
        ]

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        return await self._write_work(lambda move: move.reclaim(reclaims))

    async def time_out(self, limit: int) -> list[JobId]:
        passed = "SELECT 1 FROM job WHERE deadline_at IS NOT NULL AND phase <= 2 AND deadline_at < ? LIMIT 1"
        if self._read(lambda reader: reader._db.execute(passed, (reader.now(),)).fetchone()) is None:
            return []
        return await self._write(lambda move: move.time_out(limit))

    async def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        return await self._write(lambda move: move.purge(task, keep, limit))

    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        await self._write_work(lambda move: move.cancel(job_id, by, reason))

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
    ) -> int:
        return await self._write_work(lambda move: move.retry(job_id, by, kind, forget, queue))

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        await self._write(lambda move: move.discard(job_id, by, reason))

    # -- looking ----------------------------------------------------------------------------------------------------
    def _read(self, read: Callable[[Reader], T]) -> T:
        if self._reader is None:
            raise StoreError("the store is not open; use `async with app:`")
        try:
            return read(self._reader)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def job(self, job_id: JobId) -> JobRow | None:
        return self._read(lambda reader: reader.job(job_id))

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int) -> Page:
        return self._read(lambda reader: reader.jobs(where, after, limit))

    async def counts(self) -> dict[str, int]:
        return self._read(lambda reader: reader.counts())

    async def lanes(self) -> dict[Lane, int]:
        sql = "SELECT l.queue, l.task, (SELECT count(*) FROM job j WHERE j.phase <= 1 AND j.lane = l.id) FROM lane l"
        return {
            Lane(queue, task): count
            for queue, task, count in self._read(lambda reader: reader._db.execute(sql).fetchall())
        }

    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        return self._read(lambda reader: reader.events(after, limit, job_id))

    async def attempts(self, job_id: JobId) -> list[Attempt]:
        return self._read(lambda reader: reader.attempts(job_id))

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int
    ) -> list[DeadLetter]:
        return self._read(lambda reader: reader.dead_letters(where, after, limit))

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        return self._read(lambda reader: reader.dead_letter_groups(where, limit))

    async def late_results(self, job_id: JobId) -> list[LateResult]:
        return self._read(lambda reader: reader.late_results(job_id))

    async def steps(self, job_id: JobId) -> dict[str, str]:
        return self._read(lambda reader: reader.steps(job_id))

    async def violations(self) -> list[str]:
        return self._read(lambda reader: reader.unreadable())

    async def health(self) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            def one(sql: str) -> Any:
                return reader._db.execute(sql).fetchone()[0]

            return {
                "store": "sqlite",
                "version": sqlite3.sqlite_version,
                "durable": True,
                "journal_mode": one("PRAGMA journal_mode"),
                "bytes": one("PRAGMA page_count") * one("PRAGMA page_size"),
                "integrity": one("PRAGMA quick_check"),
            }

        return self._read(look)

    # -- waking -----------------------------------------------------------------------------------------------------
    def _ring(self) -> None:
        self._busy_until = self._clock.monotonic() + QUICK_FOR
        if self._bell is not None:
            self._bell.set()

    def _has_work(self, lanes: Sequence[Lane]) -> bool:
        """Whether any of these lines has somebody in it, or somebody is due: microseconds, and no lock."""
        if self._probe is None:
            raise StoreError("the store is not open; use `async with app:`")
        numbers = [number for lane in lanes if (number := self._lanes.known(self._probe, lane))]
        if len(numbers) != len(self._lanes._numbers):
            self._lanes.remember(self._probe)
        listed = ", ".join(map(str, numbers)) or "NULL"
        found = self._probe.execute(
            f"SELECT EXISTS (SELECT 1 FROM job WHERE phase = 0 AND lane IN ({listed}))"
            " OR EXISTS (SELECT 1 FROM job WHERE phase = 1 AND run_at <= ?)",
            (micros(self._clock.now()),),
        ).fetchone()
        return bool(found[0])

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._poll(lambda: self._has_work(lanes), timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        ended = "SELECT 1 FROM job WHERE uid = ? AND phase >= 3"
        await self._poll(
            lambda: self._read(lambda r: r._db.execute(ended, (job_id,)).fetchone() is not None), timeout
        )

    async def _poll(self, happened: Callable[[], bool], timeout: float) -> None:
        """Look every few milliseconds; an enqueue in this process rings the bell and needs no look."""
        until = self._clock.monotonic() + timeout
        self._bell = self._bell or asyncio.Event()
        self._bell.clear()
        while not happened():
            now = self._clock.monotonic()
            if now >= until:
                return
            pause = PROBE_QUICK if now < self._busy_until else PROBE_IDLE
            try:
                async with asyncio.timeout(min(pause, until - now)):
                    await self._bell.wait()
                return
            except TimeoutError:
                continue

    def heart(self) -> Heart:
        return _SqliteHeart(self)


class _SqliteHeart:
    """Beats through the writer from its own thread: the event loop may be as busy as it likes."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def beat(self, session: Session) -> bool:
        writer = self._store._writer
        if writer is None:
            return False
        return writer.run_sync(self._store._move(lambda move: self._store._extend(move, session)))

    def close(self) -> None: ...
