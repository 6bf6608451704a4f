"""`drain`: run all due jobs to their end with a real worker in the running event loop.

A drain works in rounds. In each round, promotion, reclaim and deadlines run once; then a worker claims, runs
and settles until no due job is left. On a `ManualClock`, *advance* jumps to the next job's time between
rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from holdfast.app import Holdfast
from holdfast.engine.context import Job
from holdfast.engine.engine import Engine
from holdfast.engine.ports import SettlementStatus, Store
from holdfast.engine.recovery import BATCH
from holdfast.errors import UsageError
from holdfast.jobs.job import Claimed, JobFilter, Lane, Session, Settlement
from holdfast.jobs.judgements import outcome_of
from holdfast.jobs.machine import Threads
from holdfast.jobs.moves import State
from holdfast.testing.clock import ManualClock
from holdfast.wiring import thread_pool
from holdfast.worker.attempts import Middleware
from holdfast.worker.worker import Worker

#: The session of a worker on a manual clock never expires, however far the clock is moved.
_ALWAYS = timedelta(days=36_500)
#: How often a drain checks whether its handlers wait for each other, in real seconds, and how many checks in
#: a row must agree.
CHECK_EVERY, CHECKS = 0.05, 5


@dataclass(slots=True)
class Drained:
    """The counts of one drain."""

    attempts: int = 0  #: how many times a handler was called
    completed: int = 0
    retried: int = 0  #: failed attempts that will be tried again
    failed: int = 0  #: jobs that ended as a dead letter
    snoozed: int = 0
    released: int = 0
    timed_out: int = 0  #: jobs whose deadline had passed before they ran
    reclaimed: int = 0  #: leases of lost workers that were reclaimed
    late: int = 0  #: outcomes that came after a deadline or a person had ended the job
    errors: list[BaseException] = field(default_factory=list)  #: what the handlers raised, oldest first


async def drain(
    app: Holdfast,
    *,
    advance: bool = False,
    limit: int = 10_000,
    concurrency: int = 1,
    queues: Sequence[str] | None = None,
) -> Drained:
    """Run all due jobs to their end, and return what was done.

    Args:
        app: The app whose jobs to run.
        advance: Also run jobs that are due later, such as retries, by moving the app's `ManualClock` to their
            time.
        limit: The most attempts.
        concurrency: How many jobs run at once.
        queues: The queues to run. `None` runs all.

    Raises:
        UsageError: More than *limit* attempts are needed, for example because a job enqueues itself. Also if
            *advance* is given without a `ManualClock`, or the running jobs wait for queued ones.
    """
    declared, base = app.runtime.declared, await app.runtime.engine()
    clock = base.clock
    if advance and not isinstance(clock, ManualClock):
        raise UsageError("advance=True needs a ManualClock; use app_in_memory(app, clock=ManualClock())")
    watched = _WatchedStore(base.store, limit, manual_clock=isinstance(clock, ManualClock))
    collaborators = base.artifact_store.artifacts, base.admission, base.observers
    engine = Engine(
        cast(Store, watched),
        base.tasks,
        base.settings,
        clock,
        base.rng,
        base.ids,
        *collaborators,
        codes=base.codes,
    )
    done = watched.done
    async with AsyncExitStack() as stack:
        resources = (
            await stack.enter_async_context(app.runtime.declared.lifespan())
            if app.runtime.declared.lifespan
            else None
        )
        pool = thread_pool(concurrency + 4)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        threads: Threads = _NoThreads() if watched.manual_clock else app.runtime.threads

        def new_worker() -> Worker:
            return Worker(
                engine,
                threads,
                pool,
                queues=queues,
                concurrency=concurrency,
                middleware=[_keep_errors(done.errors), *declared.middleware],
                resources=resources,
                cold_start=None,  # a released job would find no child process the next time either
            )

        while True:
            ahead = await engine.store.promote(BATCH)
            done.reclaimed += await engine.recovery.reclaim()
            done.timed_out += await engine.recovery.time_out()
            if await _anything_due(engine, queues):
                if await watched.round(new_worker()):
                    continue
                if watched.left == 0:
                    raise UsageError(
                        f"drain ran {limit} attempts and jobs are left; does a job enqueue itself? Else give a higher limit="
                    )
            if not advance or ahead is None:
                return done
            assert isinstance(clock, ManualClock)
            clock.advance(ahead)


def drain_sync(app: Holdfast, **options: Any) -> Drained:
    """Run `drain` in a test without an event loop. Takes and returns what `drain` does."""

    async def run() -> Drained:
        try:
            return await drain(app, **options)
        finally:
            await app.close()  # it was opened in this loop, which ends here

    return asyncio.run(run())


async def _anything_due(engine: Engine, queues: Sequence[str] | None) -> bool:
    filter_ = JobFilter(states=(State.QUEUED,), tasks=tuple(engine.tasks), queues=tuple(queues or ()))
    after: str | None = None
    while True:
        page = await engine.store.queries.jobs(filter_, after=after, limit=BATCH)
        if any(row.run_at <= engine.clock.now() for row in page.rows):
            return True
        if page.next is None:
            return False
        after = page.next


def _keep_errors(errors: list[BaseException]) -> Middleware:
    async def keep(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await call()
        except Exception as error:
            errors.append(error)
            raise

    return keep


class _WatchedStore:
    """The app's own store, which also counts what is done and stops the worker when nothing is left to do."""

    def __init__(self, store: Store, limit: int, *, manual_clock: bool) -> None:
        self._store, self.left, self.manual_clock = store, limit, manual_clock
        self.done = Drained()
        self._worker: Worker | None = None
        self._session: Session | None = None
        self._deadlock: UsageError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def round(self, worker: Worker) -> int:
        """Run *worker* until no due job is left, and return how many attempts it started."""
        before, self._worker = self.left, worker
        watching = asyncio.create_task(self._end_deadlock(worker)) if self.manual_clock else None
        try:
            await worker.run()
        finally:
            if watching is not None:
                watching.cancel()
        if self._deadlock is not None:
            raise self._deadlock
        return before - self.left

    async def _end_deadlock(self, worker: Worker) -> None:
        """Stop the worker if its handlers hold all slots and wait for jobs that only it could run."""
        checks, waiting = 0, worker.awaited()
        while checks < CHECKS:
            await asyncio.sleep(CHECK_EVERY)
            waiting = worker.awaited()
            checks = checks + 1 if waiting else 0
        self._deadlock = UsageError(
            f"drain runs {len(waiting)} at a time, and all of them wait for queued jobs ({waiting[0]}), which cannot"
            f" start; use drain(app, concurrency={len(waiting) + 1})"
        )
        worker.stop()
        worker.stop()  # the second call ends the grace at once

    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        self._session = await self._store.open_session(worker, _ALWAYS if self.manual_clock else ttl, queues)
        return self._session

    async def claim(
        self, session: Session, lanes: Sequence[Lane], limit: int, **bounds: Any
    ) -> list[Claimed]:
        most = min(limit, self.left)
        claimed = await self._store.claim(session, lanes, most, **bounds) if most else []
        self.left -= len(claimed)
        self.done.attempts += len(claimed)
        return claimed

    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Wait while the worker's own attempts are running. If there are none, end the round."""
        assert self._session is not None
        assert self._worker is not None
        if await self._store.held(self._session):
            await self._store.wait_for_work(lanes, timeout)
        else:
            self._worker.stop()

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        answers = await self._store.settle(settlements)
        for settlement, answer in zip(settlements, answers, strict=True):
            if answer is SettlementStatus.APPLIED:
                self._count(outcome_of(settlement.verdict))
            elif answer is SettlementStatus.LATE:
                self.done.late += 1
        return answers

    async def complete_in(self, connection: Any, settlement: Settlement) -> None:
        await self._store.complete_in(connection, settlement)
        self._count("complete")

    def _count(self, outcome: str) -> None:
        name = {"complete": "completed", "retry": "retried"}.get(outcome, outcome)
        setattr(self.done, name, getattr(self.done, name) + 1)


class _NoThreads:
    """Starts no heartbeat thread: on a manual clock the session does not expire."""

    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        return lambda timeout: None
