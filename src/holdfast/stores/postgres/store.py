"""The PostgreSQL store: the port on one side, connections on the other. `looking` has the half that only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from holdfast.domain.duration import spell
from holdfast.domain.job import (
    Batch,
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
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Answer, Clock, Heart, Hook, Reclaim, Retention, Threads
from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.postgres import intake, people, plans, recovering, sessions, settling
from holdfast.stores.postgres.bell import Bell
from holdfast.stores.postgres.claims import Claims
from holdfast.stores.postgres.heart import PostgresHeart
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.lines import Lines, shown, translate
from holdfast.stores.postgres.looking import Looking
from holdfast.stores.postgres.migrate import check, migrate
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.runner import Runner

T = TypeVar("T")


class PostgresStore(Looking):
    """One database. Each line of work has a connection of its own: claim, settle, enqueue, duty, people, read."""

    def __init__(self, url: str, clock: Clock, threads: Threads | None) -> None:
        self._lines = Lines(url)
        super().__init__(Runner(self._lines, clock))
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.url, self._clock, self._threads = url, clock, threads
        self._lanes = LaneNumbers()
        self._claims = Claims(self._lanes, clock)
        self._bell = Bell(self._lines, clock)

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        self._lines.closed = False
        async with self._lines.take("read") as connection:
            await check(connection, shown(self.url))
            if await connection.fetchval("SHOW synchronous_commit") == "off":
                raise StoreError(
                    f"{shown(self.url)} commits without waiting for the disk (synchronous_commit=off): a crash could lose"
                    " jobs that were acknowledged; set synchronous_commit=on for this user or database"
                )
            await self._lanes.remember(connection)

    async def close(self) -> None:
        await self._bell.close()
        await self._lines.close()

    async def migrate(self) -> list[str]:
        connection = await Lines(self.url).connect()
        try:
            return await migrate(connection)
        except asyncpg.PostgresError as error:
            raise translate(error, self.url) from error
        finally:
            await connection.close()

    async def shift_clock(self, by: timedelta) -> None:
        """For tests: move the store's clock, as this store's connections see it."""
        current = await self._value(
            "SELECT coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval"
        )
        await self._lines.shift(spell(current + by).replace("m", " min ").replace(" min s", "ms"))

    # -- making moves -----------------------------------------------------------------------------------------------
    def _move(self, connection: asyncpg.Connection[Any]) -> Move:
        return Move(connection, self._lanes, self.hooks)

    async def _write(self, line: str, operation: Callable[[Move], Awaitable[T]], *, atomic: bool = True) -> T:
        """Make moves. Without hooks a single statement needs no transaction around it (*atomic* False)."""

        async def run(connection: asyncpg.Connection[Any]) -> T:
            move = self._move(connection)
            if not atomic and not self.hooks:
                answer = await operation(move)
            else:
                async with connection.transaction():
                    answer = await operation(move)
                    await move.tell_hooks()
            if move.freed:
                await move.run("grant")
            return answer

        return await self._runner.run(line, run)

    async def _run(self, line: str, operation: Callable[[Move], Awaitable[T]]) -> T:
        """Statements that are repeatable one by one, and of which no hook is told: no transaction around them."""
        return await self._runner.run(line, lambda connection: operation(self._move(connection)))

    async def _write_fenced(self, lease: Lease, operation: Callable[[Move], Awaitable[None]]) -> None:
        """A write under *lease*; that one which had been reclaimed has tried it is put on record."""
        try:
            await self._run("people", operation)
        except LeaseLost:
            await self._write("people", lambda move: settling.refuse_once(move, lease))
            raise

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        batches = Batch.split(jobs)
        first = not self.hooks and all(plans.is_plain(batch.spec) for batch in batches)

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
        self._bell.ring()
        return answers

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.callers import enqueue_on

        return await enqueue_on(connection, jobs, self.url)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.callers import enqueue_on_sync

        return enqueue_on_sync(connection, jobs, self.url)

    async def reject(self, job: NewJob, failure: Failure) -> None:
        await self._write("people", lambda move: intake.reject(move, job, failure))

    async def promote(self, limit: int) -> timedelta | None:
        return await self._run("duty", lambda move: intake.promote(move, limit, self._bell.ring))

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(self, worker: str, ttl: timedelta) -> Session:
        return await self._runner.run("duty", lambda db: sessions.open_session(db, worker, ttl))

    async def extend(self, session: Session) -> bool:
        return await self._runner.run("duty", lambda db: sessions.extend(db, session))

    async def close_session(self, session: Session) -> None:
        await self._runner.run("duty", lambda db: sessions.close_session(db, session))

    async def held(self, session: Session) -> set[Lease]:
        return await self._runner.run("duty", lambda db: sessions.held(db, session))

    async def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        # Not once more by itself: whether the first claim went through cannot be known from here.
        async with self._lines.take("claim") as connection:
            return await self._claims.claim(connection, session, lanes, limit)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        # Each statement of it is repeatable on its own, so they need no transaction around them.
        answers = await self._write("settle", lambda move: settling.settle(move, settlements), atomic=False)
        self._bell.ring_here()
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        connection = await self._lines.connect(enable_seqscan="on")
        try:
            async with connection.transaction():
                yield connection
        except asyncpg.PostgresConnectionError as error:
            raise translate(error, self.url) from error
        finally:
            await connection.close()

    async def complete_in(
        self, connection: Any, lease: Lease, result: str | None, duration: timedelta
    ) -> None:
        move = self._move(connection)
        await settling.complete_in(move, lease, result, duration)
        await move.tell_hooks()

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        await self._write_fenced(lease, lambda move: settling.record_step(move, lease, name, result))

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        await self._write_fenced(lease, lambda move: settling.record_progress(move, lease, percent, message))

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        return await self._run("duty", lambda move: recovering.expired(move, limit))

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        done = await self._write("duty", lambda move: recovering.reclaim(move, reclaims))
        self._bell.ring()
        return done

    async def time_out(self, limit: int) -> list[JobId]:
        return await self._write("duty", lambda move: recovering.time_out(move, limit))

    async def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        return await self._run("duty", lambda move: recovering.purge(move, task, keep, limit))

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        token = await self._token()
        await self._write("people", lambda move: people.cancel(move, job_id, by, reason, token))
        self._bell.ring()

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
    ) -> int:
        token = await self._token()
        place = await self._write(
            "people", lambda move: people.retry(move, job_id, by, kind, forget, queue, token)
        )
        self._bell.ring()
        return place

    async def _token(self) -> str:
        """Names one call of a person's: sent again because its answer was lost, it is known by it."""
        return str(await self._runner.run("people", lambda db: db.fetchval("SELECT gen_random_uuid()")))

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        await self._write("people", lambda move: people.discard(move, job_id, by, reason))

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._bell.wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Look again and again, ever more slowly: nobody notifies of ends."""
        until, pause = self._clock.monotonic() + timeout, 0.005
        while self._clock.monotonic() < until:
            if await self._has_ended(job_id):
                return
            await self._bell.wait(min(pause, max(0.0, until - self._clock.monotonic())), listen=False)
            pause = min(pause * 1.5, 0.25)

    def heart(self) -> Heart:
        return PostgresHeart(self.url, self._lines.offset)
