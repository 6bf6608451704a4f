"""The memory store: the verbs of a job, and the parts that hold everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.lane_store import Cap, Charge
from holdfast.engine.named_request import NamedRequest, Repeated
from holdfast.engine.ports import (
    HeartbeatConnection,
    Hook,
    Reclaim,
    RetryOptions,
    SettlementStatus,
    Transaction,
)
from holdfast.engine.tables import requests
from holdfast.errors import LeaseLost
from holdfast.jobs.job import (
    Artifact,
    Claimed,
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
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Failure, Verdict
from holdfast.stores.hooks import run_to_end
from holdfast.stores.memory import attempt_data, intake, manual, outcomes, recovery
from holdfast.stores.memory.database import Database
from holdfast.stores.memory.dispatch import Dispatch
from holdfast.stores.memory.lanes import Lanes, open_lanes
from holdfast.stores.memory.queries import Queries
from holdfast.stores.memory.tables import OpenSession, Tables
from holdfast.stores.sqlite.heartbeat import LocalHeartbeat
from holdfast.stores.sqlite.limits import charge_manual_retry
from holdfast.stores.sqlite.outbox import Outbox

T = TypeVar("T")


class MemoryStore:
    """A store in memory. Each method, with its hooks, runs to its end without awaiting, so it is one transaction."""

    def __init__(self, clock: Clock) -> None:
        self._tables, self._clock = Tables(clock), clock
        self._database = database = Database(self._tables)
        self.lanes = Lanes(database)
        self.queries = Queries(self._tables, self.lanes)
        self.outbox = Outbox(database)
        self.dispatch = Dispatch(database)

    @property
    def hooks(self) -> list[tuple[frozenset[Kind], Hook]]:
        return self._database.hooks

    @hooks.setter
    def hooks(self, hooks: list[tuple[frozenset[Kind], Hook]]) -> None:
        self._database.hooks = hooks

    @property
    def extensions(self) -> StoreExtensions:
        return self._database.extensions

    @extensions.setter
    def extensions(self, extensions: StoreExtensions) -> None:
        self._database.extensions = extensions

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...

    async def migrate(self) -> list[str]:
        return []

    async def now(self) -> datetime:
        return self._clock.now()

    # -- writing under a lease --------------------------------------------------------------------------------------
    def _write_fenced(self, write: Callable[[], None]) -> None:
        """Write under a lease. If the lease was reclaimed, commit the record of the refusal and raise `LeaseLost`."""
        lost: list[LeaseLost] = []

        def make() -> None:
            try:
                write()
            except LeaseLost as error:
                lost.append(error)

        self._database.commit(make)
        if lost:
            raise lost[0]

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._database.commit(lambda: self._enqueue(jobs))

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._database.commit_in_thread(lambda: self._enqueue(jobs))

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        async def enqueue() -> Sequence[Enqueued]:
            return self._enqueue(jobs)

        return self._database.commit(
            lambda: run_to_end(
                requests.enqueue_once(self._database.transaction(), request, jobs, keep=keep, enqueue=enqueue)
            )
        )

    def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [intake.enqueue(self._tables, job) for job in jobs]

    async def reject(self, job: NewJob, failure: Failure) -> None:
        self._database.commit(lambda: intake.reject(self._tables, job, failure))

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
        room, unheld = self.lanes.room(caps, limit), open_lanes(self._database, lanes, trial)

        def claim() -> list[Claimed]:
            claimed = intake.claim(self._tables, session, unheld, room)
            self.lanes.occupy(caps, [one.lease for one in claimed])
            return claimed

        return self._database.commit(claim)

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        if not self._tables.is_live(session):
            return None
        return self._database.commit(lambda: intake.claim_job(self._tables, session, job_id, generation))

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return self._database.commit(
            lambda: outcomes.settle_unheld(self._tables, job_id, generation, verdict, by)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        def settle() -> list[SettlementStatus]:
            attempt_data.keep_logs(self._tables, settlements)
            return [outcomes.settle(self._tables, settlement) for settlement in settlements]

        return self._database.commit(settle)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield None

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        def run() -> T:
            return run_to_end(work(self._database.transaction()))

        return self._database.look(run) if reads else self._database.commit(run)

    async def complete_in(self, connection: Any, settlement: Settlement) -> None:
        self._database.commit(lambda: outcomes.complete_in(self._tables, settlement))

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
        return self._database.commit(lambda: recovery.reclaim(self._tables, reclaims, stuck))

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        return self._database.commit(lambda: recovery.time_out(self._tables, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        def purge() -> int:
            before = set(self._tables.jobs)
            removed = recovery.purge(self._tables, task, keep, limit, but)
            gone = before - self._tables.jobs.keys()
            for hook in self.extensions.purged if gone else ():
                run_to_end(hook(self._database.transaction(), gone))
            return removed

        return self._database.commit(purge)

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
        self._database.commit(lambda: manual.cancel(self._tables, job_id, by, reason, precondition))

    async def retry(self, job_id: JobId, by: str, **options: Unpack[RetryOptions]) -> int:
        return self._database.commit(
            lambda: manual.retry(self._tables, job_id, by, charge=self._charge_manual_retry, **options)
        )

    def _charge_manual_retry(self, charges: Sequence[Charge]) -> None:
        if charges:
            charge_manual_retry(self._database.move(), charges)

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        self._database.commit(lambda: manual.discard(self._tables, job_id, by, reason, precondition))

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._database.notifier.wait_for_write(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        await self._database.notifier.wait_for_write(timeout)

    def heartbeat(self) -> HeartbeatConnection:
        return LocalHeartbeat(self._extend)
