"""The SQLite store: the verbs of a job, and the parts that hold everything else."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.lane_store import Cap
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
    Settlement,
)
from holdfast.jobs.machine import Clock, Threads
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Bury, Failure, RetryAfter, Verdict
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sqlite import (
    attempt_data,
    claims,
    external,
    intake,
    manual,
    outcomes,
    recovery,
    sessions,
)
from holdfast.stores.sqlite.admission import Lanes
from holdfast.stores.sqlite.connection import connect, translate
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.dispatch import Dispatch
from holdfast.stores.sqlite.heartbeat import LocalHeartbeat
from holdfast.stores.sqlite.migrate import migrate
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.outbox import FileOutbox
from holdfast.stores.sqlite.queries import Queries
from holdfast.stores.tracebacks import StoredTracebacks

T = TypeVar("T")


class SqliteStore:
    """One file. *threads* None runs every write inline, in the caller's own thread (the simulator does)."""

    def __init__(self, path: str, clock: Clock, threads: Threads | None) -> None:
        self.path, self._clock = path, clock
        self._database = database = Database(path, clock, threads)
        self._tracebacks = StoredTracebacks(clock)
        self._turns = claims.PriorityTurns()
        self._flooded: Sequence[Lane] | None = (
            None  #: the lanes whose last claim returned as many jobs as it asked for
        )
        self.queries = Queries(database)
        self.lanes = Lanes(database, self._turns)
        self.outbox = FileOutbox(database)
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
    async def open(self) -> None:
        self._database.open()

    async def close(self) -> None:
        self._database.close()

    def abandon(self) -> None:
        self._database.close()

    async def migrate(self) -> list[str]:
        connection = connect(self.path)
        try:
            return migrate(connection, self.path, self.extensions)
        finally:
            connection.close()

    async def now(self) -> datetime:
        return self._clock.now()

    # -- queueing ---------------------------------------------------------------------------------------------------
    def _learn_lanes(self) -> None:
        """Read the lanes if the last enqueue had to read or create its lane, so that the next one finds it in the cache."""
        if self._database.lanes.missed:
            self._database.read(self._database.lanes.remember)

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        self._learn_lanes()
        return await self._database.write_work(lambda move: intake.enqueue(move, jobs))

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        def once(move: Move) -> Sequence[Enqueued] | Repeated:
            async def enqueue() -> Sequence[Enqueued]:
                return intake.enqueue(move, jobs)

            return run_to_end(
                requests.enqueue_once(move.transaction, request, jobs, keep=keep, enqueue=enqueue)
            )

        return await self._database.write_work(once)

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        self._database.open()
        self._learn_lanes()
        return self._database.write_sync(lambda move: intake.enqueue(move, jobs))

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.external_connections import on_callers_connection

        enqueue = self._database.move(lambda move: intake.enqueue(move, jobs))
        return await on_callers_connection(connection, enqueue, self.path)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        from holdfast.stores.sqlite.external_connections import on_callers_connection_sync

        enqueue = self._database.move(lambda move: intake.enqueue(move, jobs))
        return on_callers_connection_sync(connection, enqueue, self.path, self.extensions)

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._database.write(lambda move: intake.reject(move, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        ahead = self._database.peek(intake.next_due)
        if ahead is None or ahead > timedelta():
            return ahead  # no job is due, so there is nothing to write
        return await self._database.write_work(lambda move: intake.promote(move, limit))

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        return await self._database.write(lambda move: sessions.open_session(move, worker, ttl, queues))

    async def close_session(self, session: Session) -> None:
        await self._database.write(lambda move: sessions.close_session(move, session))

    async def report_waiting(self, session: Session, handlers: int) -> None:
        await self._database.write(lambda move: sessions.report_waiting(move, session, handlers))

    async def held(self, session: Session) -> set[Lease]:
        return self._database.peek(lambda move: sessions.held(move, session))

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        # If the last claim returned as many jobs as it asked for, there are probably more. This query costs a sixth of a claim.
        if lanes is not self._flooded and not self._database.listen(
            lambda notifier: notifier.has_work(lanes)
        ):
            return []
        claimed = await self._database.write(
            lambda move: claims.claim(move, self._turns, session, lanes, limit, caps, trial)
        )
        self._flooded = lanes if len(claimed) == limit else None
        if claimed:
            self._database.poll_quickly()
        elif not claimed:
            self._database.listen(lambda notifier: notifier.found_nothing(lanes))
        return claimed

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        return await self._database.write_work(
            lambda move: external.claim_job(move, session, job_id, generation)
        )

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return await self._database.write_work(
            lambda move: external.settle_unheld(move, job_id, generation, verdict, by)
        )

    async def check_writes(self) -> None:
        writer = self._database.writer
        if writer is not None and writer.failed:
            # A small write may find space where others do not.
            await writer.run(_try_to_write)
            writer.failed = False

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        failed = [s.verdict for s in settlements if isinstance(s.verdict, (RetryAfter, Bury))]
        raised = self._tracebacks.missing(failed) if failed else []
        said = [s for s in settlements if s.logs]

        def settle(move: Move) -> list[SettlementStatus]:
            if raised:
                attempt_data.keep_tracebacks(move, raised)
            if said:
                attempt_data.keep_logs(move, said)
            return outcomes.settle(move, settlements)

        answers = await self._database.write_work(settle)
        if raised:
            self._tracebacks.remember(raised)
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """Open a connection that holds the write lock of the file until the block ends. Keep the block short."""
        connection = connect(self.path)
        try:
            self._say(connection, "BEGIN IMMEDIATE")
            yield connection  # errors of the user's own statements are not translated
            self._say(connection, "COMMIT")
        finally:
            connection.close()  # without a commit this rolls back

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        def run(move: Move) -> T:
            return run_to_end(work(move.transaction))

        return self._database.peek(run) if reads else await self._database.write(run)

    def _say(self, connection: sqlite3.Connection, statement: str) -> None:
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    async def complete_in(self, connection: Any, settlement: Settlement) -> None:
        self._database.move(lambda move: outcomes.complete_in(move, settlement))(connection)

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        await self._database.write_fenced(lease, lambda move: outcomes.record_step(move, lease, name, result))

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        await self._database.write_fenced(
            lease, lambda move: outcomes.record_progress(move, lease, percent, message)
        )

    async def record_artifact(self, lease: Lease, reference: str, name: str | None, size: int) -> None:
        await self._database.write_fenced(
            lease, lambda move: attempt_data.record_artifact(move, lease, reference, name, size)
        )

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        return self._database.peek(lambda move: recovery.expired(move, limit))

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        return self._database.peek(lambda move: recovery.stuck(move, limits, limit, owner, ids))

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        return await self._database.write_work(lambda move: recovery.reclaim(move, reclaims, stuck))

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        if not self._database.peek(lambda move: recovery.overdue(move, 1, skip)):
            return []
        return await self._database.write(lambda move: recovery.time_out(move, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        self._tracebacks.forget()
        return await self._database.write(
            lambda move: recovery.purge(move, task, keep, limit, but, self.extensions.purged)
        )

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        return self._database.peek(lambda move: attempt_data.artifacts_due(move, task, keep, limit, but))

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        await self._database.write(lambda move: attempt_data.forget_artifacts(move, artifacts))

    # -- manual moves -----------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._database.write_work(lambda move: manual.cancel(move, job_id, by, reason, precondition))

    async def retry(self, job_id: JobId, by: str, **options: Unpack[RetryOptions]) -> int:
        return await self._database.write_work(lambda move: manual.retry(move, job_id, by, **options))

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._database.write(lambda move: manual.discard(move, job_id, by, reason, precondition))

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        database = self._database
        await database.notifier.wait(lambda: database.listen(lambda notifier: notifier.calls(lanes)), timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        ended = "SELECT 1 FROM holdfast_job WHERE uid = ? AND phase >= 3"
        await self._database.notifier.wait(lambda: bool(self._database.rows(ended, job_id)), timeout)

    def heartbeat(self) -> HeartbeatConnection:
        return LocalHeartbeat(self._beat)

    def _beat(self, session: Session) -> bool:
        writer = self._database.writer
        return writer is not None and writer.run_sync(
            self._database.move(lambda move: sessions.extend(move, session))
        )


def _try_to_write(connection: sqlite3.Connection) -> None:
    """Use some space of the disk, and free it in the same transaction."""
    connection.execute("CREATE TABLE holdfast_probe (data BLOB)")
    connection.execute("INSERT INTO holdfast_probe VALUES (zeroblob(65536))")
    connection.execute("DROP TABLE holdfast_probe")
