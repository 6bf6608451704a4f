"""The memory store: the port on one side, plain dictionaries on the other. `looking` has the half that only reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

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
    SessionId,
    Settlement,
)
from holdfast.domain.moves import Kind
from holdfast.domain.precondition import UNCONDITIONAL, Precondition
from holdfast.domain.queue_position import QueuePosition
from holdfast.domain.verdict import Complete, Failure, Verdict
from holdfast.engine.api_store import NamedRequest, Repeated
from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.engine.lane_store import Cap
from holdfast.engine.ports import (
    Clock,
    HeartbeatConnection,
    Hook,
    Reclaim,
    Retention,
    SettlementStatus,
    StuckAttempt,
    Transaction,
)
from holdfast.errors import LeaseLost, UsageError
from holdfast.stores.api_encoding import first_answer
from holdfast.stores.hooks import run_to_end
from holdfast.stores.memory import attempt_data, intake, manual, notes, outcomes, queue_position, recovery
from holdfast.stores.memory import dispatch as handed
from holdfast.stores.memory.api import ApiTables
from holdfast.stores.memory.lanes import Lanes
from holdfast.stores.memory.outbox import Outbox
from holdfast.stores.memory.queries import Queries
from holdfast.stores.memory.tables import OpenSession, Tables

T = TypeVar("T")


class MemoryStore(Queries, Lanes, ApiTables, Outbox):
    """Every method runs to its end without awaiting, its hooks included, so each is one transaction."""

    def __init__(self, clock: Clock) -> None:
        tables = Tables(clock)
        Queries.__init__(self, tables)
        Lanes.__init__(self, tables)
        ApiTables.__init__(self, clock)
        Outbox.__init__(self, clock)
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self._clock = clock
        self._notifier = asyncio.Event()
        self._moved = False  #: since the bell rang last

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...

    async def migrate(self) -> list[str]:
        return []

    # -- hooks ------------------------------------------------------------------------------------------------------
    def _commit(self, make: Callable[[], T]) -> T:
        """Run one transaction: the moves, then the hooks that observe them. If any of them raises, nothing has happened."""
        tables = self._tables
        if self.hooks:  # without them nothing is undone
            tables.save()
        try:
            answer = make()
            for kinds, hook in self.hooks:
                wanted = [moved for moved in tables.told if moved.kind in kinds]
                if wanted:
                    run_to_end(hook(_NoSql(tables, self), wanted))
        except BaseException:
            tables.restore()
            self.roll_back_messages()
            raise
        finally:
            moved, tables.told = bool(tables.told), []
            tables.forget_saved()
        self._moved |= moved
        self.publish_with_move()
        return answer

    def _write(self, make: Callable[[], T]) -> T:
        """Run the same, and wake the callers that wait."""
        answer = self._commit(make)
        if self._moved:
            self._moved = False
            self.notify_relays()
            notifier, self._notifier = self._notifier, asyncio.Event()
            notifier.set()
        return answer

    def _write_fenced(self, write: Callable[[], None]) -> None:
        """A write under a lease; that one which had been reclaimed has tried it stays on record."""
        lost: list[LeaseLost] = []

        def make() -> None:
            try:
                write()
            except LeaseLost as error:
                lost.append(error)

        self._write(make)
        if lost:
            raise lost[0]

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._write(lambda: [intake.enqueue(self._tables, job) for job in jobs])

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        # From any thread: the bell belongs to the loop's, and rings with its next write.
        return self._commit(lambda: [intake.enqueue(self._tables, job) for job in jobs])

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        before = self.answered(request)
        if before is not None:
            return first_answer(before, jobs)
        answers = await self.enqueue(jobs)  # runs to its end without awaiting
        self.remember(request, answers, keep)
        return answers

    async def reject(self, job: NewJob, failure: Failure) -> None:
        self._write(lambda: intake.reject(self._tables, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        return intake.promote(self._tables)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        session = Session(id=SessionId(next(self._tables.session_ids)), worker=worker, ttl=ttl)
        served = None if queues is None else tuple(sorted(queues))
        self._tables.sessions[session.id] = OpenSession(
            session, served, self._clock.now(), self._end_of(session)
        )
        return session

    def _end_of(self, session: Session) -> float:
        return self._clock.monotonic() + session.ttl.total_seconds()

    async def extend(self, session: Session) -> bool:
        return self._extend(session)

    def _extend(self, session: Session) -> bool:
        lives = self._tables.is_live(session)
        if lives:
            self._tables.sessions[session.id].until = self._end_of(session)
        return lives

    async def close_session(self, session: Session) -> None:
        self._tables.sessions.pop(session.id, None)

    async def report_waiting(self, session: Session, handlers: int) -> None:
        if self._tables.is_live(session):
            self._tables.sessions[session.id].waiting = handlers

    async def held(self, session: Session) -> set[Lease]:
        jobs = self._tables.jobs.values()
        return {Lease(job.id, job.epoch) for job in jobs if job.live and job.live.session.id == session.id}

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        if not self._tables.is_live(session):
            return []
        room = self.room(caps)
        wanted = limit if room is None else min(limit, room)
        unheld = self.open_lanes(lanes, trial)
        claimed = self._write(lambda: intake.claim(self._tables, session, unheld, wanted))
        self.occupy(caps, [one.lease for one in claimed])
        return claimed

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        if not self._tables.is_live(session):
            return None
        return self._write(lambda: intake.claim_job(self._tables, session, job_id, generation))

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        if not self._tables.is_live(session):
            return []
        unheld = self.open_lanes(list(self._tables.lanes), False)
        return self._write(lambda: handed.claim_jobs(self._tables, session, hints, unheld))

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        return handed.waiting(self._tables, ids)

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        return handed.all_waiting(self._tables, after, limit)

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        return handed.due_soon(self._tables, within, limit)

    async def count_waiting(self) -> dict[Lane, Depth]:
        return handed.count_waiting(self._tables)

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return self._write(lambda: outcomes.settle_unheld(self._tables, job_id, generation, verdict, by))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        def settle() -> list[SettlementStatus]:
            attempt_data.keep_logs(self._tables, settlements)
            return [outcomes.settle(self._tables, settlement) for settlement in settlements]

        return self._write(settle)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield None

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False) -> T:
        return self._write(lambda: run_to_end(work(_NoSql(self._tables, self))))

    async def complete_in(self, connection: Any, lease: Lease, end: Complete, duration: timedelta) -> None:
        self._write(lambda: outcomes.complete_in(self._tables, lease, end, duration))

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        self._write_fenced(lambda: outcomes.record_step(self._tables, lease, name, result))

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        self._write_fenced(lambda: outcomes.record_progress(self._tables, lease, percent, message))

    async def record_artifact(self, lease: Lease, reference: str, name: str | None, size: int) -> None:
        self._write_fenced(lambda: attempt_data.record_artifact(self._tables, lease, reference, name, size))

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        return recovery.expired(self._tables, limit)

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        return recovery.stuck(self._tables, limits, limit, owner, ids)

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        return self._write(lambda: recovery.reclaim(self._tables, reclaims, stuck))

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        return self._write(lambda: recovery.time_out(self._tables, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        return self._write(lambda: recovery.purge(self._tables, task, keep, limit, but))

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        return attempt_data.artifacts_due(self._tables, task, keep, limit, but)

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        attempt_data.forget_artifacts(self._tables, artifacts)

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        self._write(lambda: manual.cancel(self._tables, job_id, by, reason, precondition))

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
        return self._write(
            lambda: manual.retry(
                self._tables, job_id, by, kind, forget, queue, edit, priority, precondition, stuck
            )
        )

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        self._write(lambda: manual.discard(self._tables, job_id, by, reason, precondition))

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        return self._write(lambda: notes.note(self._tables, job_id, kind, name, meta))

    # -- looking, at lanes too ----------------------------------------------------------------------------------------
    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        return queue_position.queue_position(
            self._tables, job_id, {scope: self.use(scope) for scope in scopes}
        )

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        await self._wait(timeout)

    async def _wait(self, timeout: float) -> None:
        notifier = self._notifier
        try:
            async with asyncio.timeout(
                timeout
            ):  # `wait_for` of 3.11 may lose a cancellation that comes with the ring
                await notifier.wait()
        except TimeoutError:
            return

    def heartbeat(self) -> HeartbeatConnection:
        return _MemoryHeartbeat(self._extend)


class _NoSql:
    """What a hook is given here: there is no SQL to run, but the moves are told."""

    dialect = "memory"

    def __init__(self, tables: Tables, store: MemoryStore) -> None:
        self.tables, self.store = tables, store

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        raise UsageError("the memory store runs no SQL; test this hook on SQLite")

    async def now(self) -> datetime:
        return self.tables.clock.now()


class _MemoryHeartbeat:
    """*beat* extends a session; it never waits, so any thread may call it."""

    def __init__(self, beat: Callable[[Session], bool]) -> None:
        self._beat = beat

    def beat(self, session: Session) -> bool:
        return self._beat(session)

    def close(self) -> None: ...
