"""The PostgreSQL store: the port on one side, connections and statements on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import asyncpg

from holdfast.domain.duration import spell
from holdfast.domain.job import (
    AllNew,
    Attempt,
    Batch,
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
from holdfast.engine.ports import Answer, Clock, Heart, Hook, Moved, Page, Reclaim, Retention, Threads
from holdfast.errors import LeaseLost, StoreError, StoreUnavailable, UnknownJob
from holdfast.stores.postgres import plans
from holdfast.stores.postgres.bell import Bell
from holdfast.stores.postgres.claims import Cursors
from holdfast.stores.postgres.heart import PostgresHeart
from holdfast.stores.postgres.lines import PASSING, Lines, shown, translate
from holdfast.stores.postgres.migrate import check, migrate
from holdfast.stores.postgres.moves import Moves, to_json
from holdfast.stores.postgres.plans import SQL
from holdfast.stores.postgres.rows import Reader

T = TypeVar("T")

#: How often a write is sent again because the server undid it or the connection was lost: each is repeatable (law 3).
TRIES = 4
#: How long a priority that nobody used before may stay unknown to a worker.
LOOK_EVERY = 1.0


class PostgresStore:
    def __init__(self, url: str, clock: Clock, threads: Threads | None) -> None:
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.url, self._clock, self._threads = url, clock, threads
        self._lines = Lines(url)
        self._bell = Bell(self._lines, clock)
        self._cursors = Cursors(clock)
        self._lanes: dict[Lane, int] = {}
        self._lane_of: dict[int, Lane] = {}
        self._looked_at = 0.0

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
            await self._learn_lanes(connection)

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
        current = await self._read(
            lambda db: db.fetchval(
                "SELECT coalesce(nullif(current_setting('holdfast.clock_offset', true), ''), '0')::interval"
            )
        )
        await self._lines.shift(spell(current + by).replace("m", " min ").replace(" min s", "ms"))

    # -- running statements -----------------------------------------------------------------------------------------
    async def _again(self, line: str, operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """Do *operation* on this line; once more when the server undid it or the connection was lost."""
        pause = 0.02
        for left in range(TRIES, 0, -1):
            try:
                async with self._lines.take(line) as connection:
                    return await operation(connection)
            except StoreUnavailable as error:
                if left == 1 or not isinstance(
                    error.__cause__,
                    (*PASSING, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError),
                ):
                    raise
                await self._clock.sleep(pause)
                pause *= 3
        raise AssertionError("unreachable")

    async def _read(self, operation: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        return await self._again("read", operation)

    async def _write(
        self, line: str, operation: Callable[[Moves], Awaitable[T]], *, atomic: bool = True
    ) -> T:
        """Make moves. Without hooks a single statement needs no transaction around it (*atomic* False)."""

        async def run(connection: asyncpg.Connection[Any]) -> T:
            moves = Moves(connection, telling=bool(self.hooks))
            if not atomic and not self.hooks:
                answer = await operation(moves)
            else:
                async with connection.transaction():
                    answer = await operation(moves)
                    await self._tell_hooks(connection, moves.told)
            if moves.freed:
                await connection.fetch(SQL["grant"])
            return answer

        return await self._again(line, run)

    async def _tell_hooks(self, connection: asyncpg.Connection[Any], told: Sequence[Moved]) -> None:
        for kinds, hook in self.hooks:
            wanted = [moved for moved in told if moved.kind in kinds]
            if wanted:
                await hook(_HookTransaction(connection), wanted)

    # -- lanes ------------------------------------------------------------------------------------------------------
    async def _learn_lanes(self, connection: asyncpg.Connection[Any]) -> None:
        rows = await connection.fetch("SELECT id, queue, task FROM holdfast.lane")
        self._lane_of = {row["id"]: Lane(row["queue"], row["task"]) for row in rows}
        self._lanes = {lane: number for number, lane in self._lane_of.items()}

    async def _lane_number(self, connection: asyncpg.Connection[Any], lane: Lane) -> int:
        """Made outside of any transaction of others, so that no caller's lock is waited for."""
        if lane not in self._lanes:
            number = await connection.fetchval("SELECT holdfast.lane_number($1, $2)", *lane)
            self._lanes[lane], self._lane_of[number] = number, lane
        return self._lanes[lane]

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        batches = Batch.split(jobs)
        first = not self.hooks and all(plans.is_plain(batch.spec) for batch in batches)

        async def run(connection: asyncpg.Connection[Any]) -> Sequence[Enqueued]:
            nonlocal first
            plain, first = first, False
            if plain:
                try:
                    return await self._enqueue_plain(connection, batches)
                except asyncpg.UniqueViolationError:
                    pass  # sent before, and the answer was lost
            async with connection.transaction():
                return await self._enqueue_planned(connection, jobs)

        answers = await self._again("enqueue", run)
        self._bell.ring()
        return answers

    async def _enqueue_plain(
        self, connection: asyncpg.Connection[Any], batches: Sequence[Batch]
    ) -> Sequence[Enqueued]:
        parts = [part for batch in batches for part in batch.parts(plans.MOST_PER_EVENT)]
        lanes = [await self._lane_number(connection, part.spec.lane) for part in parts]
        if len(parts) == 1:
            await connection.fetch(SQL["enqueue"], *plans.parameters(parts[0], lanes[0]))
        else:
            async with connection.transaction():
                for part, lane in zip(parts, lanes, strict=True):
                    await connection.fetch(SQL["enqueue"], *plans.parameters(part, lane))
        return AllNew([job_id for batch in batches for job_id in batch.ids])

    async def _enqueue_planned(
        self, connection: asyncpg.Connection[Any], jobs: Sequence[NewJob]
    ) -> list[Enqueued]:
        plan = plans.enqueue(jobs)
        told: list[Moved] = []
        try:
            sql, parameters = next(plan)
            while True:
                rows = await connection.fetch(sql, *parameters)
                if sql is SQL["enqueue_again"]:
                    told += [Moved(Kind.queued, JobId(str(row[0])), 0, 0, {}) for row in rows]
                sql, parameters = plan.send(rows)
        except StopIteration as done:
            await self._tell_hooks(connection, told)
            answers: list[Enqueued] = done.value
            return answers

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.callers import enqueue_on

        return await enqueue_on(connection, jobs)

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        from holdfast.stores.postgres.callers import enqueue_on_sync

        return enqueue_on_sync(connection, jobs)

    async def reject(self, job: NewJob, failure: Failure) -> None:
        async def run(moves: Moves) -> None:
            lane = await self._lane_number(moves._db, job.spec.lane)
            meta = {"error_code": failure.code}
            await moves._run(
                "reject",
                job.id,
                job.payload,
                lane,
                job.spec.owner,
                failure.code,
                failure.message,
                to_json(meta),
            )
            moves.told.append(Moved(Kind.rejected, job.id, 0, 0, meta))

        await self._write("people", run)

    async def promote(self, limit: int) -> timedelta | None:
        async def run(connection: asyncpg.Connection[Any]) -> timedelta | None:
            ahead: timedelta | None = None
            while True:
                row = await connection.fetchrow(SQL["promote"], limit)
                assert row is not None
                moved, ahead = row
                if moved:
                    self._bell.ring()
                if moved < limit:
                    break
            granted = await connection.fetchrow(SQL["grant"])
            if granted is not None and granted[0]:
                self._bell.ring()
            return ahead

        return await self._again("duty", run)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(self, worker: str, ttl: timedelta) -> Session:
        sql = (
            "INSERT INTO holdfast.session (worker, ttl, started_at, expires_at)"
            " VALUES ($1, $2, holdfast.clock(), holdfast.clock() + $2) RETURNING id"
        )
        number = await self._again("duty", lambda db: db.fetchval(sql, worker, ttl))
        return Session(id=SessionId(number), worker=worker, ttl=ttl)

    async def extend(self, session: Session) -> bool:
        return await self._again("duty", lambda db: db.fetchval(SQL["extend"], session.id)) is not None

    async def close_session(self, session: Session) -> None:
        sql = "UPDATE holdfast.session SET expires_at = least(expires_at, holdfast.clock()) WHERE id = $1"
        await self._again("duty", lambda db: db.execute(sql, session.id))

    async def held(self, session: Session) -> set[Lease]:
        rows = await self._again(
            "duty",
            lambda db: db.fetch("SELECT job_id, epoch FROM holdfast.lease WHERE session_id = $1", session.id),
        )
        return {Lease(JobId(str(row[0])), row[1]) for row in rows}

    async def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        async with self._lines.take("claim") as connection:
            if any(lane not in self._lanes for lane in lanes):
                await self._learn_lanes(connection)
            numbers = [self._lanes[lane] for lane in lanes if lane in self._lanes]
            if not numbers:
                return []
            await self._look(connection)
            rows = await self._claim(connection, session, numbers, min(limit, plans.MOST_PER_EVENT))
            if not rows and not self._cursors.was_full:
                self._cursors.restart()
                rows = await self._claim(connection, session, numbers, min(limit, plans.MOST_PER_EVENT))
        lane_of = self._lane_of
        return [
            Claimed(
                Lease(JobId(str(row[0])), row[1]), lane_of[row[2]], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
                row[10], row[11], row[12], row[13], row[14], row[15],
            )
            for row in rows
        ]  # fmt: skip

    async def _claim(
        self, connection: asyncpg.Connection[Any], session: Session, numbers: list[int], limit: int
    ) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(
            SQL["claim"], session.id, *self._cursors.probes(numbers), limit
        )
        self._cursors.saw(rows)
        return rows

    async def _look(self, connection: asyncpg.Connection[Any]) -> None:
        """Every so often: learn which lines have somebody, because a priority may be new."""
        began = self._clock.monotonic()
        if began >= self._looked_at:
            self._cursors.know(await connection.fetch(SQL["lines"]))
            now = self._clock.monotonic()
            self._looked_at = now + max(LOOK_EVERY, 20 * (now - began))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        # Each statement of it is repeatable on its own, so they need no transaction around them.
        answers = await self._write("settle", lambda moves: moves.settle(settlements), atomic=False)
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
        moves = Moves(connection, telling=bool(self.hooks))
        await moves.complete_in(lease, result, duration)
        await self._tell_hooks(connection, moves.told)

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        sql = SQL["record_step"]
        if await self._again("people", lambda db: db.fetchval(sql, *lease, name, result)) is None:
            await self._refuse(lease)

    async def steps(self, job_id: JobId) -> dict[str, str]:
        rows = await self._read(
            lambda db: db.fetch(
                "SELECT name, result FROM holdfast.step WHERE job_id = $1 ORDER BY at", job_id
            )
        )
        return {row["name"]: row["result"] for row in rows}

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        sql = (
            "UPDATE holdfast.lease SET progress = $3::jsonb WHERE job_id = $1 AND epoch = $2 RETURNING epoch"
        )
        told = to_json({"percent": percent, "message": message})
        if await self._again("people", lambda db: db.fetchval(sql, *lease, told)) is None:
            await self._refuse(lease)

    async def _refuse(self, lease: Lease) -> NoReturn:
        await self._write("people", lambda moves: moves.refuse_once(lease))
        raise LeaseLost(*lease)

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        async def run(connection: asyncpg.Connection[Any]) -> list[Expired]:
            rows = await Moves(connection).expired(limit)
            if any(row["lane"] not in self._lane_of for row in rows):
                await self._learn_lanes(connection)
            return [
                Expired(Lease(JobId(str(row[0])), row[1]), self._lane_of[row[2]], *row[3:]) for row in rows
            ]

        return await self._again("duty", run)

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        done = await self._write("duty", lambda moves: moves.reclaim(reclaims))
        self._bell.ring()
        return done

    async def time_out(self, limit: int) -> list[JobId]:
        return await self._write("duty", lambda moves: moves.time_out(limit))

    async def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        async def run(connection: asyncpg.Connection[Any]) -> int:
            done = 0
            if keep.results is not None:
                status = await connection.execute(SQL["purge_results"], keep.results, task, limit)
                done += int(status.rsplit(" ", 1)[1])
            if keep.jobs is not None:
                done += len(await connection.fetch(SQL["purge_jobs"], keep.jobs, task, limit))
            if keep.events is not None and task is None:
                status = await connection.execute(
                    "DELETE FROM holdfast.event WHERE seq IN (SELECT seq FROM holdfast.event WHERE at <= holdfast.clock() - $1::interval"
                    " ORDER BY seq LIMIT $2::int)", keep.events, limit,
                )  # fmt: skip
                done += int(status.rsplit(" ", 1)[1])
            return done

        return await self._again("duty", run)

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        await self._write("people", lambda moves: moves.cancel(known(job_id), by, reason))
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
        async def run(moves: Moves) -> int:
            lane: int | None = None
            if queue is not None:
                row = await self.job(job_id)
                if row is None:
                    raise UnknownJob(job_id)
                lane = await self._lane_number(moves._db, Lane(queue, row.task))
            return await moves.retry(known(job_id), by, kind, forget, lane)

        place = await self._write("people", run)
        self._bell.ring()
        return place

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        await self._write("people", lambda moves: moves.discard(known(job_id), by, reason))

    # -- looking ----------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None:
        if not _is_uuid(job_id):
            return None
        return await self._read(lambda db: Reader(db).job(job_id))

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int) -> Page:
        return await self._read(lambda db: Reader(db).jobs(where, after, limit))

    async def counts(self) -> dict[str, int]:
        return await self._read(lambda db: Reader(db).counts())

    async def lanes(self) -> dict[Lane, int]:
        sql = """SELECT n.queue, n.task, (SELECT count(*) FROM holdfast.ready r WHERE r.lane = n.id)
                        + (SELECT count(*) FROM holdfast.deferred d WHERE d.lane = n.id) FROM holdfast.lane n"""
        return {Lane(queue, task): count for queue, task, count in await self._read(lambda db: db.fetch(sql))}

    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        if job_id is not None:
            return (
                await self._read(lambda db: Reader(db).events_of(job_id, after, limit))
                if _is_uuid(job_id)
                else []
            )
        return await self._read(lambda db: Reader(db).events(after, limit))

    async def attempts(self, job_id: JobId) -> list[Attempt]:
        return await self._read(lambda db: Reader(db).attempts(job_id)) if _is_uuid(job_id) else []

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int
    ) -> list[DeadLetter]:
        return await self._read(lambda db: Reader(db).dead_letters(where, after, limit))

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        return await self._read(lambda db: Reader(db).dead_letter_groups(where, limit))

    async def late_results(self, job_id: JobId) -> list[LateResult]:
        return await self._read(lambda db: Reader(db).late_results(job_id)) if _is_uuid(job_id) else []

    async def violations(self) -> list[str]:
        return await self._read(lambda db: Reader(db).violations())

    async def health(self) -> dict[str, Any]:
        async def look(db: asyncpg.Connection[Any]) -> dict[str, Any]:
            return {
                "store": "postgresql",
                "version": await db.fetchval("SHOW server_version"),
                "schema": await db.fetchval("SELECT max(number) FROM holdfast.migration"),
                "durable": await db.fetchval("SHOW synchronous_commit") != "off"
                and await db.fetchval("SHOW fsync") == "on",
                "bytes": await db.fetchval(
                    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                    " WHERE n.nspname = 'holdfast' AND c.relkind = 'r'"
                ),
                "oldest_transaction_s": await db.fetchval(
                    "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity"
                    " WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
                ),
            }

        return await self._read(look)

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._bell.wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Look again and again, ever more slowly: nobody notifies of ends."""
        until, pause = self._clock.monotonic() + timeout, 0.005
        while self._clock.monotonic() < until:
            if await self._read(
                lambda db: db.fetchval("SELECT 1 FROM holdfast.done WHERE job_id = $1", job_id)
            ):
                return
            await self._bell.wait(min(pause, max(0.0, until - self._clock.monotonic())), listen=False)
            pause = min(pause * 1.5, 0.25)

    def heart(self) -> Heart:
        return PostgresHeart(self.url, self._lines.offset)


class _HookTransaction:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(sql, *params)]


def _is_uuid(text: str) -> bool:
    return len(text) == 36 and all(c in "0123456789abcdef-" for c in text.lower())


def known(job_id: JobId) -> JobId:
    """Only a uuid can be the id of a job here."""
    if not _is_uuid(job_id):
        raise UnknownJob(job_id)
    return job_id
