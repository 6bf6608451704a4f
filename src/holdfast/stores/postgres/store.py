"""The PostgreSQL store: the port on one side, connections on the other. `looking` has the half that only reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg

from holdfast.domain.duration import format_duration
from holdfast.domain.job import (
    Artifact,
    Claimed,
    Edit,
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
from holdfast.domain.moves import Kind
from holdfast.domain.outbox import NewMessage
from holdfast.domain.precondition import UNCONDITIONAL, Precondition
from holdfast.domain.verdict import Complete, Failure, Verdict
from holdfast.engine.lane_store import Cap
from holdfast.engine.ports import (
    Clock,
    HeartbeatConnection,
    Reclaim,
    Retention,
    SettlementStatus,
    StuckAttempt,
    Threads,
)
from holdfast.errors import StoreError
from holdfast.stores.postgres import (
    attempt_data,
    dependencies,
    enqueue_plan,
    external,
    intake,
    manual,
    notes,
    outcomes,
    recovery,
    sessions,
)
from holdfast.stores.postgres.claims import Claims, Wanted
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.dispatch import DispatchQueries
from holdfast.stores.postgres.driver_errors import behind_a_pooler, shown, translate
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.event_numbers import keep_growing
from holdfast.stores.postgres.heartbeat import PostgresHeartbeat
from holdfast.stores.postgres.lane_registration import register, register_sync
from holdfast.stores.postgres.many_lanes import ROUNDS, LaneCrowd
from holdfast.stores.postgres.migrate import check, migrate
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outbox import publish_parameters
from holdfast.stores.postgres.runner import UNDONE
from holdfast.stores.postgres.transaction_pool import TransactionPool
from holdfast.stores.tracebacks import StoredTracebacks

_SETTINGS = "SELECT current_setting('enable_seqscan'), current_setting('synchronous_commit')"


class PostgresStore(DispatchQueries):
    """One database. Each line of work goes on while others wait: claim, settle, enqueue, duty, people, read."""

    def __init__(self, url: str, clock: Clock, threads: Threads | None) -> None:
        super().__init__(Connections(url), clock)
        self.url, self._threads = url, threads
        self._claims = Claims(self._lanes, clock)
        self._tracebacks = StoredTracebacks(clock)
        self._rings_when_empty: int | None = None
        self._lending = TransactionPool(self._lines)

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        self._lines.closed = self._notifier.closed = self._message_bell.closed = False
        async with self._lines.take("read") as connection:
            await check(connection, shown(self.url))
            seqscan, commits = await connection.fetchrow(_SETTINGS) or ("", "")
            if not self._lines.pooled and seqscan != "off":
                # Our settings did not arrive, so statements may not stay either: worse than failing, a session of somebody
                # else may know another statement by the same name.
                raise behind_a_pooler(self.url)
            if commits == "off":
                raise StoreError(
                    f"{shown(self.url)} commits without waiting for the disk (synchronous_commit=off): a crash could lose"
                    " jobs that were acknowledged; set synchronous_commit=on for this user or database"
                )
            await keep_growing(connection)
            await self._lanes.remember(connection)
        self._lines.greet = self._greet

    async def _greet(self, connection: asyncpg.Connection[Any]) -> None:
        """Prepare for a server that may have replaced the one before, restored from a backup: we go on by ourselves."""
        self._marks.forget()
        await keep_growing(connection)

    async def close(self) -> None:
        await self._notifier.close()
        await self._message_bell.close()
        await self._lending.close()
        await self._lines.close()

    def abandon(self) -> None:
        self._notifier.abandon()
        self._message_bell.abandon()
        self._lending.abandon()
        self._lines.abandon()

    async def migrate(self) -> list[str]:
        connection = await Connections(self.url).connect()
        try:
            done = await migrate(connection, shown(self.url))
            await keep_growing(connection)
            return done
        except asyncpg.PostgresError as error:
            raise translate(error, self.url) from error
        finally:
            await connection.close()

    async def shift_clock(self, by: timedelta) -> None:
        """For tests: move the store's clock, as this store's connections see it."""
        current = await self._value(
            "SELECT coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval"
        )
        self._lines.offset = format_duration(current + by).replace("m", " min ").replace(" min s", "ms")

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        batches = JobBatch.split(jobs)
        first = not self.hooks and all(enqueue_plan.is_plain(batch.spec) for batch in batches)

        async def run(connection: asyncpg.Connection[Any]) -> Sequence[Enqueued]:
            nonlocal first
            plain, first = first, False
            move = self._move(connection)
            if plain:
                try:
                    return await intake.enqueue_plain(move, batches)
                except asyncpg.UniqueViolationError:
                    pass  # sent before, and the answer was lost
            async with connection.transaction():
                return await intake.enqueue_planned(move, jobs)

        answers = await self._runner.run("enqueue", run)
        await self._let_in(batches)
        return answers

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.external_connections import Terms, enqueue_on

        return await enqueue_on(connection, jobs, Terms(self.url, self.hooks), self._new_lanes)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.external_connections import Terms, enqueue_on_sync

        terms = Terms(self.url, self.hooks)
        return enqueue_on_sync(connection, jobs, terms, partial(register_sync, self._lines.url))

    async def publish_in(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.postgres.external_connections import publish_on

        await publish_on(connection, publish_parameters(messages, notify=True), self.url)

    def publish_in_sync(self, connection: Any, messages: Sequence[NewMessage]) -> None:
        from holdfast.stores.postgres.external_connections import publish_on_sync

        publish_on_sync(connection, publish_parameters(messages, notify=True), self.url)

    async def register(self, lanes: Collection[Lane]) -> None:
        new = self._lanes.unknown(lanes)
        if new:
            await self._new_lanes(new)

    async def _new_lanes(self, lanes: Collection[Lane]) -> dict[Lane, int]:
        """Made on a line of their own; nothing where that does not get through: then they are made where they are used."""
        try:
            async with self._lines.take("lanes") as connection:
                return await register(connection, lanes)
        except StoreError:
            return {}

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._write("people", lambda move: intake.reject(move, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        async def promote(move: Move) -> timedelta | None:
            ahead = await intake.promote(move, limit, self._notifier.notify)
            await self._keep_lanes(move.connection)
            return ahead

        return await self._run("maintenance", promote)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        return await self._runner.run(
            "maintenance", lambda db: sessions.open_session(db, worker, ttl, queues)
        )

    async def extend(self, session: Session) -> bool:
        return await self._runner.run("maintenance", lambda db: sessions.extend(db, session))

    async def close_session(self, session: Session) -> None:
        async def close(connection: asyncpg.Connection[Any]) -> None:
            await sessions.close_session(connection, session)
            await dependencies.leave(connection, session)

        await self._runner.run("maintenance", close)

    async def report_waiting(self, session: Session, handlers: int) -> None:
        await self._runner.run("maintenance", lambda db: sessions.report_waiting(db, session, handlers))

    async def held(self, session: Session) -> set[Lease]:
        return await self._runner.run("maintenance", lambda db: sessions.held(db, session))

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
        # Sent again only when the server undid it: whether one without an answer went through cannot be known from here.
        return await self._runner.run("claim", lambda db: self._claim(db, wanted), again=UNDONE)

    async def _claim(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if (
            self._notifier.keys_wait
        ):  # a caller's own transaction has enqueued jobs with keys: let in who may go
            self._notifier.keys_wait = False
            await connection.fetch(SQL["grant"], None)
        crowd = await self._claims.crowds.find(connection, wanted.lanes, wanted.caps)
        if crowd is not None:
            return await self._claim_from(crowd, connection, wanted)
        rings = self._notifier.rings
        # Nobody has told of anything since a claim came back empty: most likely there is nothing, which is quickly seen.
        if rings == self._rings_when_empty and not await self._claims.has_listener(connection, wanted.lanes):
            return []
        await self._stager.before_claim(connection, wanted.lanes)
        claimed = await self._claim_once(connection, wanted)
        if not claimed and await self._stager.after_nothing(connection, wanted.lanes):
            claimed = await self._claim_once(connection, wanted)
        self._rings_when_empty = None if claimed else rings
        return claimed

    async def _claim_from(
        self, crowd: LaneCrowd, connection: asyncpg.Connection[Any], wanted: Wanted
    ) -> list[Claimed]:
        """Claim over very many lanes: from a few lines, which take turns."""
        await crowd.look(connection, self._notifier.calls)
        found: list[Claimed] = []
        levels = self._claims.levels()
        for _ in range(ROUNDS):
            left = wanted.limit - len(found)
            lines = await crowd.choose(connection, levels, left, wanted.trial)
            if lines:
                fair = {(line.lane, line.prio) for line in lines if crowd.lanes[line.lane].fair}
                await self._stager.place(connection, fair)
                claimed = await self._claim_once(connection, wanted._replace(limit=left, lines=lines))
                await crowd.give_back(connection, lines, claimed)
                found += claimed
            if len(found) >= wanted.limit or (found and crowd.rests and not len(crowd.roster)):
                break
            if not len(crowd.roster) and not await crowd.scan_all(connection):
                break
        return found

    async def _claim_once(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if not any(Kind.processing in kinds for kinds, _ in self.hooks):
            return await self._claims.claim(connection, wanted)
        move = self._move(connection)
        async with connection.transaction():
            claimed = await self._claims.claim(connection, wanted)
            for one in claimed:
                move.tell(Kind.processing, one.lease, one.attempt, {"worker": wanted.session.worker})
            await move.call_hooks()
        return claimed

    def share(self, priorities: Mapping[str, int]) -> None:
        self._claims.share(priorities)

    def _freed(self) -> None:
        self._claims.crowds.wake()

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        return await self._write(
            "people", lambda move: external.claim_job(move, self._lanes, session, job_id, generation)
        )

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        return await self._write(
            "people", lambda move: external.settle_unheld(move, job_id, generation, verdict, by)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        raised = self._tracebacks.missing(settlements)

        async def settle(move: Move) -> list[SettlementStatus]:
            await attempt_data.keep_tracebacks(move, raised)
            await attempt_data.keep_logs(move, settlements)
            return await outcomes.settle(move, settlements)

        # Each statement of it is repeatable on its own, so they need no transaction around them.
        answers = await self._write("settle", settle, atomic=False)
        self._tracebacks.remember(raised)
        self._notifier.notify_here()
        return answers

    def transaction(self) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]:
        return self._lending.transaction()

    async def complete_in(self, connection: Any, lease: Lease, end: Complete, duration: timedelta) -> None:
        move = self._move(connection)
        await outcomes.complete_in(move, lease, end, duration)
        await move.call_hooks()

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
        return await self._run("maintenance", lambda move: recovery.expired(move, limit))

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        return await self._run("maintenance", lambda move: recovery.stuck(move, limits, limit, owner, ids))

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        done = await self._write("maintenance", lambda move: recovery.reclaim(move, reclaims, stuck))
        self._notifier.notify()
        return done

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        return await self._write("maintenance", lambda move: recovery.time_out(move, limit, skip))

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        self._tracebacks.forget()
        return await self._write(
            "maintenance", lambda move: recovery.purge(move, task, keep, limit, but), atomic=False
        )

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        return await self._run(
            "maintenance", lambda move: attempt_data.artifacts_due(move, task, keep, limit, but)
        )

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        await self._run("maintenance", lambda move: attempt_data.forget_artifacts(move, artifacts))

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        named, atomic = await self._named(precondition), precondition != UNCONDITIONAL
        cancel = partial(manual.cancel, job_id=job_id, by=by, reason=reason, precondition=named)
        await self._write("people", cancel, atomic=atomic)
        self._notifier.notify()

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
        named = await self._named(precondition)
        place = await self._write(
            "people",
            lambda move: manual.retry(move, job_id, by, kind, forget, queue, edit, priority, named, stuck),
        )
        self._notifier.notify()
        return place

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        await self._write("people", lambda move: manual.discard(move, job_id, by, reason, precondition))

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        return await self._write("people", lambda move: notes.note(move, job_id, kind, name, meta))

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._notifier.wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Look again and again, ever more slowly: nobody notifies of ends."""
        until, pause = self._clock.monotonic() + timeout, 0.005
        while self._clock.monotonic() < until:
            if await self._has_ended(job_id):
                return
            await self._notifier.wait(min(pause, max(0.0, until - self._clock.monotonic())), listen=False)
            pause = min(pause * 1.5, 0.25)

    def heartbeat(self) -> HeartbeatConnection:
        return PostgresHeartbeat(self.url, self._lines.offset)
