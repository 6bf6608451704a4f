"""`drain`: everything that is due, run to its end by a real worker in the running event loop.

A drain is a row of rounds. In a round the duties run once (promote, reclaim, deadlines), then a worker claims, runs
and settles until nothing is left in line. On a `ManualClock`, *advance* jumps to the next job's time between rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from holdfast.app import Holdfast
from holdfast.domain.job import Claimed, JobFilter, Lane, Lease, Session, Settlement
from holdfast.domain.judgements import outcome_of
from holdfast.domain.moves import State
from holdfast.domain.verdict import Complete
from holdfast.engine.context import Job
from holdfast.engine.engine import Engine
from holdfast.engine.ports import SettlementStatus, Store, Threads
from holdfast.engine.recovery import BATCH
from holdfast.errors import UsageError
from holdfast.testing.clock import ManualClock
from holdfast.wiring import thread_pool
from holdfast.worker.attempts import Middleware
from holdfast.worker.worker import Worker

#: A worker on a manual clock lives as long as its drain, however far the clock is moved meanwhile.
_ALWAYS = timedelta(days=36_500)
#: How often a drain looks whether its handlers wait for each other, in real seconds, and how often in a row it must see it.
LOOK_EVERY, LOOKS = 0.05, 5


@dataclass(slots=True)
class Drained:
    """What one drain did."""

    attempts: int = 0  #: how often a handler was called
    completed: int = 0
    retried: int = 0  #: failed attempts that will be tried again
    failed: int = 0  #: jobs that ended as a dead letter
    snoozed: int = 0
    released: int = 0
    timed_out: int = 0  #: jobs whose deadline had passed before they ran
    reclaimed: int = 0  #: leases of lost workers that were reclaimed
    late: int = 0  #: answers that came after the job had ended by deadline or by a person
    errors: list[BaseException] = field(default_factory=list)  #: what the handlers raised, oldest first


async def drain(
    app: Holdfast,
    *,
    advance: bool = False,
    limit: int = 10_000,
    concurrency: int = 1,
    queues: Sequence[str] | None = None,
) -> Drained:
    """Run all due jobs to their end, one after the other unless *concurrency* says otherwise.

    *advance* also runs what is due later, retries and delayed jobs alike, by moving the app's `ManualClock` to each
    job's time. More than *limit* attempts is a `UsageError`: something enqueues itself or is retried for ever.
    """
    base = await app.engine()
    clock = base.clock
    if advance and not isinstance(clock, ManualClock):
        raise UsageError("advance=True needs a ManualClock; use app_in_memory(app, clock=ManualClock())")
    watched = _WatchedStore(base.store, limit, still=isinstance(clock, ManualClock))
    given = base.artifact_store.artifacts, base.admission, base.observers
    engine = Engine(
        cast(Store, watched), base.tasks, base.settings, clock, base.rng, base.ids, *given, codes=base.codes
    )
    done = watched.done
    async with AsyncExitStack() as stack:
        resources = await stack.enter_async_context(app._lifespan()) if app._lifespan else None
        pool = thread_pool(concurrency + 4)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        threads: Threads = _NoThreads() if watched.still else app._threads

        def hire() -> Worker:
            return Worker(
                engine,
                threads,
                pool,
                queues=queues,
                concurrency=concurrency,
                middleware=[_keep_errors(done.errors), *app._middleware],
                resources=resources,
                cold_start=None,  # a job that is given back would find no process the next time either
            )

        while True:
            ahead = await engine.store.promote(BATCH)
            done.reclaimed += await engine.reclaim()
            done.timed_out += await engine.time_out()
            if await _anything_due(engine, queues):
                if await watched.round(hire()):
                    continue
                if watched.left == 0:
                    raise UsageError(
                        f"drain ran {limit} attempts and there is more; does a job enqueue itself? Else give a higher limit="
                    )
            if not advance or ahead is None:
                return done
            assert isinstance(clock, ManualClock)
            clock.advance(ahead)


def drain_sync(app: Holdfast, **options: Any) -> Drained:
    """`drain` for a test without an event loop."""

    async def run() -> Drained:
        try:
            return await drain(app, **options)
        finally:
            await app.close()  # it was opened for this loop, which ends here

    return asyncio.run(run())


async def _anything_due(engine: Engine, queues: Sequence[str] | None) -> bool:
    where = JobFilter(states=(State.QUEUED,), tasks=tuple(engine.tasks), queues=tuple(queues or ()))
    after: str | None = None
    while True:
        page = await engine.store.jobs(where, after=after, limit=BATCH)
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
    """The app's own store. It counts what passes, and sends the worker home when nothing is left to do."""

    def __init__(self, store: Store, limit: int, *, still: bool) -> None:
        self._store, self.left, self.still = store, limit, still
        self.done = Drained()
        self._worker: Worker | None = None
        self._session: Session | None = None
        self._deadlock: UsageError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def round(self, worker: Worker) -> int:
        """Let *worker* work until nothing is in line; how many attempts it began."""
        before, self._worker = self.left, worker
        watching = asyncio.create_task(self._end_deadlock(worker)) if self.still else None
        try:
            await worker.run()
        finally:
            if watching is not None:
                watching.cancel()
        if self._deadlock is not None:
            raise self._deadlock
        return before - self.left

    async def _end_deadlock(self, worker: Worker) -> None:
        """Send the worker home when its handlers wait for jobs that only this worker could run, and hold all of its slots."""
        looks, waiting = 0, worker.awaited()
        while looks < LOOKS:
            await asyncio.sleep(LOOK_EVERY)
            waiting = worker.awaited()
            looks = looks + 1 if waiting else 0
        self._deadlock = UsageError(
            f"drain runs {len(waiting)} at a time, and all of them wait for queued jobs ({waiting[0]}), so none can"
            f" start; give it room: drain(app, concurrency={len(waiting) + 1})"
        )
        worker.stop()
        worker.stop()  # at once

    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        self._session = await self._store.open_session(worker, _ALWAYS if self.still else ttl, queues)
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
        """The worker found nothing to claim: either its own attempts are on their way, or this round is over."""
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

    async def complete_in(self, connection: Any, lease: Lease, end: Complete, duration: timedelta) -> None:
        await self._store.complete_in(connection, lease, end, duration)
        self._count("complete")

    def _count(self, outcome: str) -> None:
        name = {"complete": "completed", "retry": "retried"}.get(outcome, outcome)
        setattr(self.done, name, getattr(self.done, name) + 1)


class _NoThreads:
    """On a manual clock no heartbeat is needed: the session does not end by itself."""

    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        return lambda timeout: None
