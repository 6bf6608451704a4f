"""The SQLite store: the port on one side, the writer on the other. `looking` has the half that only reads."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import (
    Artifact,
    Claimed,
    Edit,
    Enqueued,
    Expired,
    JobId,
    Lane,
    Lease,
    NewJob,
    Session,
    Settlement,
)
from holdfast.domain.lanes import Cause, Dependency, Held, Scope
from holdfast.domain.moves import Kind
from holdfast.domain.outbox import NewMessage
from holdfast.domain.precondition import UNCONDITIONAL, Precondition
from holdfast.domain.stats import JobStats
from holdfast.domain.verdict import Complete, Failure, Verdict
from holdfast.engine.lane_store import Cap, Charge, DependencyReport, DependencyState, QuotaRefusal, Tick
from holdfast.engine.ports import (
    Clock,
    HeartbeatConnection,
    Hook,
    Reclaim,
    Retention,
    SettlementStatus,
    StuckAttempt,
    Threads,
    Transaction,
)
from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sqlite import (
    attempt_data,
    claims,
    dependencies,
    external,
    fairness,
    holds,
    intake,
    limits,
    manual,
    notes,
    outcomes,
    recovery,
    schedules,
    sessions,
)
from holdfast.stores.sqlite.connection import connect, translate
from holdfast.stores.sqlite.dispatch import DispatchQueries
from holdfast.stores.sqlite.heartbeat import SqliteHeartbeat
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.messages import publish
from holdfast.stores.sqlite.migrate import migrate
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.notifier import Notifier
from holdfast.stores.sqlite.queries import Queries
from holdfast.stores.sqlite.stats import stats, stats_apart
from holdfast.stores.sqlite.writer import Writer
from holdfast.stores.tracebacks import StoredTracebacks

T = TypeVar("T")


class SqliteStore(Queries, DispatchQueries):
    """One file. *threads* None runs every write inline, in the caller's own thread (the simulator does)."""

    def __init__(self, path: str, clock: Clock, threads: Threads | None) -> None:
        super().__init__(path, clock)
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self._threads = threads
        self._lanes = LaneNumbers()
        self._tracebacks = StoredTracebacks(clock)
        self._rota = claims.PriorityTurns()
        self._writer: Writer | None = None
        self._notifier: Notifier | None = None
        self._flooded: Sequence[Lane] | None = None  #: the lanes whose last claim got all it asked for

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        self.open_sync()

    def open_sync(self) -> None:
        if self._writer is not None:
            return
        connection = connect(self.path)
        try:
            migrate(connection, self.path)
            self._lanes.remember(connection)
        except BaseException:
            connection.close()
            raise
        self._open_reader()
        self._notifier = Notifier(connect(self.path), self._lanes, self._clock)
        self._writer = Writer(connection, self.path, self._threads)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        writer, notifier = self._writer, self._notifier
        self._writer = self._notifier = None
        if writer is not None and notifier is not None:
            self._close_reader()
            notifier.close()
            writer.close()

    async def migrate(self) -> list[str]:
        connection = connect(self.path)
        try:
            return migrate(connection, self.path)
        finally:
            connection.close()

    async def stats(self, most: int) -> JobStats:
        now = self._clock.now()
        if self._threads is None:
            return self._look(lambda reader: stats(reader, most, now))
        return await stats_apart(self.path, self._threads, most, now)

    # -- making moves -----------------------------------------------------------------------------------------------
    def _move(self, operation: Callable[[Move], T]) -> Callable[[sqlite3.Connection], T]:
        def run(connection: sqlite3.Connection) -> T:
            move = Move(connection, self._clock, self._lanes, self.hooks)
            answer = operation(move)
            move.call_hooks()
            return answer

        return run

    async def _write(self, operation: Callable[[Move], T]) -> T:
        if self._writer is None:
            raise StoreError("the store is not open; use `async with app:`")
        return await self._writer.run(self._move(operation))

    async def _write_work(self, operation: Callable[[Move], T]) -> T:
        """Run a write that may queue jobs, and wake the callers in this process that wait for work."""
        answer = await self._write(operation)
        if self._notifier is not None:
            self._notifier.notify()
        return answer

    async def _write_fenced(self, lease: Lease, operation: Callable[[Move], None]) -> None:
        """A write under *lease*; that one which had been reclaimed has tried it is put on record."""
        try:
            await self._write(operation)
        except LeaseLost:
            await self._write(lambda move: outcomes.refuse_once(move, lease))
            raise

    def _peek(self, operation: Callable[[Move], T]) -> T:
        """An operation that only looks: no lock, and nobody waits for it."""
        return self._look(lambda reader: operation(Move(reader, self._clock, self._lanes)))

    # -- queueing ---------------------------------------------------------------------------------------------------
    def _learn_lanes(self) -> None:
        """If the last enqueue had to look for its lane, or to make it, the next one knows it."""
        if self._lanes.missed:
            self._look(self._lanes.remember)

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        self._learn_lanes()
        return await self._write_work(lambda move: intake.enqueue(move, jobs))

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        self.open_sync()
        assert self._writer is not None
        self._learn_lanes()
        return self._writer.run_sync(self._move(lambda move: intake.enqueue(move, jobs)))

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.external_connections import on_callers_connection

        enqueue = self._move(lambda move: intake.enqueue(move, jobs))
        return await on_callers_connection(connection, enqueue, self.path)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.external_connections import on_callers_connection_sync

        enqueue = self._move(lambda move: intake.enqueue(move, jobs))
        return on_callers_connection_sync(connection, enqueue, self.path)

    def publish_sync(self, messages: Sequence[NewMessage]) -> None:
        self.open_sync()
        assert self._writer is not None
        self._writer.run_sync(self._move(lambda move: publish(move, messages)))

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.sqlite.external_connections import on_callers_connection

        keep = self._move(lambda move: publish(move, messages))
        await on_callers_connection(connection, keep, self.path)

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.sqlite.external_connections import on_callers_connection_sync

        keep = self._move(lambda move: publish(move, messages))
        on_callers_connection_sync(connection, keep, self.path)

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._write(lambda move: intake.reject(move, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        ahead = self._peek(intake.next_due)
        if ahead is None or ahead > timedelta():
            return ahead  # nobody is due: nothing to write, nobody to wake
        return await self._write_work(lambda move: intake.promote(move, limit))

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        return await self._write(lambda move: sessions.open_session(move, worker, ttl, queues))

    async def extend(self, session: Session) -> bool:
        return await self._write(lambda move: sessions.extend(move, session))

    async def close_session(self, session: Session) -> None:
        await self._write(lambda move: sessions.close_session(move, session))

    async def report_waiting(self, session: Session, handlers: int) -> None:
        await self._write(lambda move: sessions.report_waiting(move, session, handlers))

    async def held(self, session: Session) -> set[Lease]:
        return self._peek(lambda move: sessions.held(move, session))

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        # Where the last claim got all it asked for, there is more: a look costs a sixth of the claim.
        if lanes is not self._flooded and not self._listen(lambda notifier: notifier.has_work(lanes)):
            return []
        claimed = await self._write(
            lambda move: claims.claim(move, self._rota, session, lanes, limit, caps, trial)
        )
        self._flooded = lanes if len(claimed) == limit else None
        if claimed and self._notifier is not None:
            self._notifier.poll_quickly()
        elif not claimed:
            self._listen(lambda notifier: notifier.found_nothing(lanes))
        return claimed

    def share(self, priorities: Mapping[str, int]) -> None:
        self._rota.levels.weights = dict(priorities)

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        return await self._write_work(lambda move: external.claim_job(move, session, job_id, generation))

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return await self._write_work(
            lambda move: external.settle_unheld(move, job_id, generation, verdict, by)
        )

    async def check_writes(self) -> None:
        if self._writer is not None and self._writer.failed:
            await self._writer.run(
                _try_to_write
            )  # not every write tells: a small one may find room where others do not
            self._writer.failed = False

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        raised = self._tracebacks.missing(settlements)

        def settle(move: Move) -> list[SettlementStatus]:
            attempt_data.keep_tracebacks(move, raised)
            attempt_data.keep_logs(move, settlements)
            return outcomes.settle(move, settlements)

        answers = await self._write_work(settle)
        self._tracebacks.remember(raised)
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """A connection that holds the write lock of the file until the block is left: keep it short."""
        connection = connect(self.path)
        try:
            self._say(connection, "BEGIN IMMEDIATE")
            yield connection  # what the user's own statements raise is the user's
            self._say(connection, "COMMIT")
        finally:
            connection.close()  # without a commit this rolls back

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False) -> T:
        def run(move: Move) -> T:
            return run_to_end(work(move.transaction))

        return self._peek(run) if reads else await self._write(run)

    def _say(self, connection: sqlite3.Connection, statement: str) -> None:
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def complete_in(self, connection: Any, lease: Lease, end: Complete, duration: timedelta) -> None:
        self._move(lambda move: outcomes.complete_in(move, lease, end, duration))(connection)

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        await self._write_fenced(lease, lambda move: outcomes.record_step(move, lease, name, result))

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        await self._write_fenced(lease, lambda move: outcomes.record_progress(move, lease, percent, message))

    async def record_artifact(self, lease: Lease, reference: str, name: str | None, size: int) -> None:
        await self._write_fenced(
            lease, lambda move: attempt_data.record_artifact(move, lease, reference, name, size)
        )

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        return self._peek(lambda move: recovery.expired(move, limit))

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        return self._peek(lambda move: recovery.stuck(move, limits, limit, owner, ids))

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        return await self._write_work(lambda move: recovery.reclaim(move, reclaims, stuck))

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        if not self._peek(lambda move: any(recovery.overdue(move, 1, skip))):
            return []
        return await self._write(lambda move: recovery.time_out(move, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        self._tracebacks.forget()
        return await self._write(lambda move: recovery.purge(move, task, keep, limit, but))

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        return self._peek(lambda move: attempt_data.artifacts_due(move, task, keep, limit, but))

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        await self._write(lambda move: attempt_data.forget_artifacts(move, artifacts))

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._write_work(lambda move: manual.cancel(move, job_id, by, reason, precondition))

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
        edit: Edit | None = None,
        priority: int | None = None,
        precondition: Precondition = UNCONDITIONAL,
        stuck: StuckAttempt | None = None,
    ) -> int:
        return await self._write_work(
            lambda move: manual.retry(
                move, job_id, by, kind, forget, queue, edit, priority, precondition, stuck
            )
        )

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._write(lambda move: manual.discard(move, job_id, by, reason, precondition))

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        return await self._write(lambda move: notes.note(move, job_id, kind, name, meta))

    # -- lanes ------------------------------------------------------------------------------------------------------
    async def now(self) -> datetime:
        return self._clock.now()

    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        await self._write(lambda move: holds.hold(move, scope, cause, span, reason, by))

    async def resume(self, scope: Scope, cause: Cause, *, by: str) -> bool:
        ended = await self._write_work(lambda move: holds.resume(move, scope, cause, by))
        await self._wake_crowds()
        return ended

    async def _wake_crowds(self) -> None:
        """Let the claims of this process look again at what was held. In a write, where claims are made."""
        if self._rota.crowds:
            await self._write(lambda _: self._rota.crowds.wake())

    async def holds(self) -> list[Held]:
        return self._peek(holds.holds)

    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        if self._peek(lambda move: dependencies.is_news(move, session, reports)):
            return await self._write(lambda move: dependencies.report(move, session, reports))
        return self._peek(lambda move: dependencies.dependency_states_of(move, reports))

    async def dependency_states(self) -> list[DependencyState]:
        return self._peek(dependencies.dependency_states)

    async def swap_breaker(
        self,
        dependency: Dependency,
        breaker: Breaker,
        *,
        holds: bool,
        kind: Kind | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        swapped = await self._write_work(
            lambda move: dependencies.swap_breaker(move, dependency, breaker, holds, kind, meta)
        )
        if swapped and not holds:
            await self._wake_crowds()
        return swapped

    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        return await self._write(lambda move: limits.charge(move, charges))

    async def usage(self, scope: str) -> dict[str, int]:
        return self._peek(lambda move: limits.usage(move, scope))

    async def weigh(self, weights: Mapping[str, float]) -> None:
        await self._write(lambda move: fairness.weigh(move, weights))

    async def ticks(self) -> list[Tick]:
        return self._peek(schedules.ticks)

    async def tick(
        self,
        name: str,
        *,
        before: datetime | None,
        last: datetime,
        due: datetime,
        ticked: datetime | None = None,
    ) -> bool:
        return await self._write(lambda move: schedules.tick(move, name, before, last, due, ticked))

    async def forget_schedule(self, name: str) -> bool:
        return await self._write(lambda move: schedules.forget_schedule(move, name))

    # -- waking -----------------------------------------------------------------------------------------------------
    def _listen(self, question: Callable[[Notifier], T]) -> T:
        try:
            return question(self._open_bell())
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._open_bell().wait(lambda: self._listen(lambda notifier: notifier.calls(lanes)), timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        await self._open_bell().wait(lambda: self._has_ended(job_id), timeout)

    async def _wait_until(self, happened: Callable[[], bool], timeout: float) -> None:
        await self._open_bell().wait(happened, timeout)

    def _open_bell(self) -> Notifier:
        if self._notifier is None:
            raise StoreError("the store is not open; use `async with app:`")
        return self._notifier

    def heartbeat(self) -> HeartbeatConnection:
        return SqliteHeartbeat(self._beat)

    def _beat(self, session: Session) -> bool:
        return self._writer is not None and self._writer.run_sync(
            self._move(lambda move: sessions.extend(move, session))
        )


def _try_to_write(connection: sqlite3.Connection) -> None:
    """Take up some space and give it back in the same transaction."""
    connection.execute("CREATE TABLE holdfast_probe (data BLOB)")
    connection.execute("INSERT INTO holdfast_probe VALUES (zeroblob(65536))")
    connection.execute("DROP TABLE holdfast_probe")
