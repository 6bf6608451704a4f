"""The PostgreSQL store: the verbs of a job, and the parts that hold everything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, Unpack

import asyncpg

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
from holdfast.errors import StoreError
from holdfast.jobs.job import (
    Artifact,
    Claimed,
    Enqueued,
    Expired,
    JobBatch,
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
from holdfast.stores.migrations import load_extensions
from holdfast.stores.postgres import (
    attempt_data,
    enqueue_plan,
    external,
    intake,
    manual,
    outcomes,
    recovery,
    sessions,
)
from holdfast.stores.postgres.admission import Lanes
from holdfast.stores.postgres.claims import Claims, Wanted
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.database import UNDONE, Database
from holdfast.stores.postgres.dispatch import Dispatch
from holdfast.stores.postgres.driver_errors import behind_a_pooler, shown, translate
from holdfast.stores.postgres.event_numbers import keep_growing
from holdfast.stores.postgres.fairness import Stager
from holdfast.stores.postgres.heartbeat import PostgresHeartbeat
from holdfast.stores.postgres.lane_registration import register, register_sync
from holdfast.stores.postgres.migrate import check, migrate
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outbox import Outbox
from holdfast.stores.postgres.queries import Queries
from holdfast.stores.postgres.transaction_pool import TransactionPool
from holdfast.stores.tracebacks import StoredTracebacks
from holdfast.values.duration import format_duration

T = TypeVar("T")

_SETTINGS = "SELECT current_setting('enable_seqscan'), current_setting('synchronous_commit')"


class PostgresStore:
    """One database. Each kind of work has a connection: claim, settle, enqueue, maintenance, people, read."""

    def __init__(self, url: str, clock: Clock, threads: Threads | None) -> None:
        self.url, self._threads, self._clock = url, threads, clock
        self._database = database = Database(url, clock)
        self._connections, self._notifier = database.connections, database.notifier
        self._stager = Stager(database.lanes, clock)
        self._claims = Claims(database, self._stager)
        self._tracebacks = StoredTracebacks(clock)
        self._transactions = TransactionPool(database.connections)
        self._checked = False  #: the extensions that the database has are loaded
        self.queries = Queries(database)
        self.lanes = Lanes(database, self._claims, self._stager)
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
    async def open(self) -> None:
        self._connections.closed = self._notifier.closed = self.outbox.notifier.closed = False
        async with self._connections.take("read") as connection:
            await check(connection, shown(self.url), self.extensions)
            self._checked = True
            seqscan, commits = await connection.fetchrow(_SETTINGS) or ("", "")
            if not self._connections.pooled and seqscan != "off":
                # Our settings did not arrive, so prepared statements may not stay either. Worse than an error would be a
                # session of another client that has another statement of the same name.
                raise behind_a_pooler(self.url)
            if commits == "off":
                raise StoreError(
                    f"{shown(self.url)} commits without waiting for the disk (synchronous_commit=off): a crash could lose"
                    " jobs that were acknowledged; set synchronous_commit=on for this user or database"
                )
            await keep_growing(connection)
            await self._database.lanes.remember(connection)
        self._connections.greet = self._greet

    async def now(self) -> datetime:
        now: datetime = await self._database.value("SELECT holdfast.clock()")
        return now

    async def _greet(self, connection: asyncpg.Connection[Any]) -> None:
        """Prepare a new connection, whose server may have replaced the one before and may be restored from a backup."""
        self.outbox.marks.forget()
        await keep_growing(connection)

    async def close(self) -> None:
        await self._notifier.close()
        await self.outbox.notifier.close()
        await self._transactions.close()
        await self._connections.close()

    def abandon(self) -> None:
        self._notifier.abandon()
        self.outbox.notifier.abandon()
        self._transactions.abandon()
        self._connections.abandon()

    async def migrate(self) -> list[str]:
        connection = await Connections(self.url).connect()
        try:
            done = await migrate(connection, shown(self.url), self.extensions)
            await keep_growing(connection)
            return done
        except asyncpg.PostgresError as error:
            raise translate(error, self.url) from error
        finally:
            await connection.close()

    async def shift_clock(self, by: timedelta) -> None:
        """Move the clock of this store's connections, for tests."""
        current = await self._database.value(
            "SELECT coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval"
        )
        self._connections.offset = format_duration(current + by).replace("m", " min ").replace(" min s", "ms")

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        batches = JobBatch.split(jobs)
        first = not self.hooks and all(enqueue_plan.is_plain(batch.spec) for batch in batches)

        async def run(connection: asyncpg.Connection[Any]) -> Sequence[Enqueued]:
            nonlocal first
            plain, first = first, False
            move = self._database.move(connection)
            if plain:
                try:
                    return await intake.enqueue_plain(move, batches)
                except asyncpg.UniqueViolationError:
                    pass  # they were stored before, and the answer was lost
            async with connection.transaction():
                return await intake.enqueue_planned(move, jobs)

        answers = await self._database.run("enqueue", run)
        await self._entered(batches)
        return answers

    async def _entered(self, batches: Sequence[JobBatch]) -> None:
        """Notify workers of new jobs, and place those of fair lanes. The jobs are stored: if that fails, a claim places them."""
        if any(batch.spec.lane.fair for batch in batches):
            with suppress(StoreError):
                await self._database.run("enqueue", lambda db: self._stager.after_enqueue(db, batches))
        self._notifier.notify()

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        batches = JobBatch.split(jobs)

        async def run(connection: asyncpg.Connection[Any]) -> Sequence[Enqueued] | Repeated:
            if not self.hooks and all(enqueue_plan.is_plain(batch.spec) for batch in batches):
                try:
                    return await once(connection, lambda move: intake.enqueue_plain(move, batches))
                except asyncpg.UniqueViolationError:
                    pass  # the jobs are known, but their request is not, or not any more
            return await once(connection, lambda move: intake.enqueue_planned(move, jobs))

        async def once(
            connection: asyncpg.Connection[Any], enqueue: Callable[[Move], Awaitable[Sequence[Enqueued]]]
        ) -> Sequence[Enqueued] | Repeated:
            async with connection.transaction():
                move = self._database.move(connection)
                return await requests.enqueue_once(
                    move.transaction, request, jobs, keep=keep, enqueue=lambda: enqueue(move)
                )

        answers = await self._database.run("enqueue", run)
        if not isinstance(answers, Repeated):
            await self._entered(batches)
        return answers

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.external_connections import Terms, enqueue_on

        return await enqueue_on(connection, jobs, Terms(self.url, self.hooks), self._new_lanes)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.external_connections import Terms, enqueue_on_sync

        terms = Terms(self.url, self.hooks, None if self._checked else self._load_extensions)
        return enqueue_on_sync(connection, jobs, terms, partial(register_sync, self._connections.url))

    def _load_extensions(self, components: Collection[str]) -> None:
        """Load the extensions whose tables the database has: a store that was never opened does not know them."""
        load_extensions(self.extensions, components)
        self._checked = True

    async def register(self, lanes: Collection[Lane]) -> None:
        new = self._database.lanes.unknown(lanes)
        if new:
            await self._new_lanes(new)

    async def _new_lanes(self, lanes: Collection[Lane]) -> dict[Lane, int]:
        """Create lanes on a connection of their own. If that fails, an enqueue creates each lane that it needs."""
        try:
            async with self._connections.take("lanes") as connection:
                return await register(connection, lanes)
        except StoreError:
            return {}

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._database.write("people", lambda move: intake.reject(move, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        async def promote(move: Move) -> timedelta | None:
            ahead = await intake.promote(move, limit, self._notifier.notify)
            await self.lanes.maintain(move.connection)
            return ahead

        return await self._database.run_each("maintenance", promote)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        return await self._database.run(
            "maintenance", lambda db: sessions.open_session(db, worker, ttl, queues)
        )

    async def close_session(self, session: Session) -> None:
        await self._database.run("maintenance", lambda db: sessions.close_session(db, session))

    async def report_waiting(self, session: Session, handlers: int) -> None:
        await self._database.run("maintenance", lambda db: sessions.report_waiting(db, session, handlers))

    async def held(self, session: Session) -> set[Lease]:
        return await self._database.run("maintenance", lambda db: sessions.held(db, session))

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        wanted = Wanted(session, lanes, limit, caps, trial)
        # It is sent again only if the server has undone it: without an answer it is not known whether it was done.
        return await self._database.run("claim", lambda db: self._claims.claim(db, wanted), again=UNDONE)

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        return await self._database.write(
            "people", lambda move: external.claim_job(move, self._database.lanes, session, job_id, generation)
        )

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return await self._database.write(
            "people", lambda move: external.settle_unheld(move, job_id, generation, verdict, by)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        failed = [s.verdict for s in settlements if isinstance(s.verdict, (RetryAfter, Bury))]
        raised = self._tracebacks.missing(failed) if failed else []
        said = [s for s in settlements if s.logs]

        async def settle(move: Move) -> list[SettlementStatus]:
            if raised:
                await attempt_data.keep_tracebacks(move, raised)
            if said:
                await attempt_data.keep_logs(move, said)
            return await outcomes.settle(move, settlements)

        # Each statement is repeatable on its own, so they need no transaction around them.
        answers = await self._database.write("settle", settle, atomic=False)
        if raised:
            self._tracebacks.remember(raised)
        self._notifier.notify_here()
        return answers

    def transaction(self) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]:
        return self._transactions.transaction()

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        return await self._database.transact(work, reads=reads, atomic=atomic)

    async def complete_in(self, connection: Any, settlement: Settlement) -> None:
        move = self._database.move(connection)
        await outcomes.complete_in(move, settlement)
        await move.call_hooks()

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
        return await self._database.run_each("maintenance", lambda move: recovery.expired(move, limit))

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        return await self._database.run_each(
            "maintenance", lambda move: recovery.stuck(move, limits, limit, owner, ids)
        )

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        done = await self._database.write("maintenance", lambda move: recovery.reclaim(move, reclaims, stuck))
        self._notifier.notify()
        return done

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        return await self._database.write("maintenance", lambda move: recovery.time_out(move, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        self._tracebacks.forget()
        hooks = self.extensions.purged
        return await self._database.write(
            "maintenance",
            lambda move: recovery.purge(move, task, keep, limit, but, hooks),
            atomic=bool(hooks),
        )

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        return await self._database.run_each(
            "maintenance", lambda move: attempt_data.artifacts_due(move, task, keep, limit, but)
        )

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        await self._database.run_each(
            "maintenance", lambda move: attempt_data.forget_artifacts(move, artifacts)
        )

    # -- manual moves -----------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        named, atomic = await self._database.named(precondition), precondition != UNCONDITIONAL
        cancel = partial(manual.cancel, job_id=job_id, by=by, reason=reason, precondition=named)
        await self._database.write("people", cancel, atomic=atomic)
        self._notifier.notify()

    async def retry(self, job_id: JobId, by: str, **options: Unpack[RetryOptions]) -> int:
        precondition = options.get("precondition", UNCONDITIONAL)
        options["precondition"] = await self._database.named(precondition)
        place = await self._database.write("people", lambda move: manual.retry(move, job_id, by, **options))
        self._notifier.notify()
        return place

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._database.write(
            "people", lambda move: manual.discard(move, job_id, by, reason, precondition)
        )

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._notifier.wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Poll ever more slowly, because nothing notifies of the end of a job."""
        until, pause = self._clock.monotonic() + timeout, 0.005
        while self._clock.monotonic() < until:
            if await self._database.value("SELECT 1 FROM holdfast.done WHERE job_id = $1", job_id):
                return
            await self._notifier.wait(min(pause, max(0.0, until - self._clock.monotonic())), listen=False)
            pause = min(pause * 1.5, 0.25)

    def heartbeat(self) -> HeartbeatConnection:
        return PostgresHeartbeat(self.url, self._connections.offset)
