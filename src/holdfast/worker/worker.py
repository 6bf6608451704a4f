"""The worker process: claim jobs for the free slots, run them and settle them until `stop` is called."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from holdfast.engine.context import Job
from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.jobs.job import Claimed, JobId
from holdfast.jobs.machine import Threads
from holdfast.jobs.verdict import Failure, Verdict
from holdfast.logging import Log
from holdfast.signals import AFTER_GRACE
from holdfast.worker.admission import LaneAdmission
from holdfast.worker.attempts import Executors, Middleware
from holdfast.worker.claiming import Claimer, Wakeup
from holdfast.worker.deadlocks import DeadlockDetector
from holdfast.worker.dependencies import BEAT_EVERY, Dependencies
from holdfast.worker.dispatched import DispatchedJobs
from holdfast.worker.lease_reconciler import LeaseReconciler
from holdfast.worker.log_capture import capture_logs
from holdfast.worker.processes import COLD_START, ProcessPool
from holdfast.worker.running import RunningAttempts
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

#: The name of the asyncio task that holds the attempts. It outlives the worker when a handler does not stop.
ATTEMPTS = "holdfast-attempts"
#: Of the seconds after the grace, the part reserved for closing the session and for ending the process.
LAST_CLOSE, SPARE = 1.0, 0.5


class Worker:
    """One worker process. `run` returns after `stop`, once every job is settled or released.

    Args:
        engine: The engine to claim from and settle through.
        threads: Starts the heartbeat thread.
        pool: The threads that run plain `def` handlers and talk to child processes.
        queues: The queues to serve. `None` serves all.
        concurrency: The number of slots. `None` takes the setting.
        middleware: Wraps every attempt, the first one outermost.
        resources: Passed to handlers as `job.resources`.
        until_idle: Stop when there is nothing left to run.
        cold_start: How many seconds an attempt with a hard timeout waits for its child process before its job
            is released.
    """

    def __init__(
        self,
        engine: Engine,
        threads: Threads,
        pool: Executor,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        middleware: Sequence[Middleware] = (),
        resources: Any = None,
        until_idle: bool = False,
        cold_start: float | None = COLD_START,
    ) -> None:
        settings = engine.settings
        self._engine = engine
        self._queues = frozenset(queues) if queues else None
        self._captures_logs = settings.keep_logs != "never"
        self._slots = Slots(
            concurrency or settings.concurrency, settings.min_concurrency, engine.clock.monotonic()
        )
        self._worker_session = WorkerSession(
            engine, threads, self._queues, begun=self._session_began, lost=self._session_lost
        )
        self._processes = ProcessPool(
            pool,
            keep_logs=self._captures_logs,
            most_jobs=settings.child_jobs,
            most_memory=settings.child_memory,
        )
        self._wakeup = Wakeup()
        self._settlements = SettlementWriter(engine, self._wakeup.set, self._verdict_after_refusal)
        self._dependencies = Dependencies(engine, self._wakeup.set)
        self._running = RunningAttempts(
            engine,
            Executors(engine, pool, self._processes, list(middleware), cold_start),
            self._settlements,
            self._dependencies,
            self._slots,
            resources=resources,
            freed=self._wakeup.set,
        )
        self._deadlocks = DeadlockDetector(engine, self._running, self._slots, self._queues)
        broker = engine.broker
        source = engine.store if broker is None else DispatchedJobs(engine, broker)
        self._claimer = Claimer(
            engine,
            self._worker_session,
            self._slots,
            ServedLanes(engine, self._queues),
            LaneAdmission(
                engine, self._dependencies, self._settlements.put, source, self._settlements.receipts
            ),
            source,
            self._running,
            self._settlements,
            self._wakeup,
            idle=self.stop if until_idle else None,
        )
        self._reconciler = LeaseReconciler(
            engine, self._worker_session, self._running, self._settlements, self._claimer
        )
        self._stopping = False
        self._end_now = asyncio.Event()
        self._left_behind = asyncio.Event()  #: set when the remaining attempts do not stop and are abandoned
        self._end_by = math.inf  #: when the last write must be finished; set when the grace is over

    @property
    def name(self) -> str:
        return self._worker_session.name

    def attempt_of(self, task: asyncio.Task[Any] | None) -> tuple[Job, Callable[..., Any]] | None:
        """Return the job that this asyncio *task* works for and its handler. Thread-safe."""
        return self._running.attempt_of(task)

    def awaited(self) -> list[JobId]:
        """Return the queued jobs that handlers wait for if waiting handlers hold all slots, else none."""
        return self._deadlocks.awaited()

    def stop(self) -> None:
        """Stop claiming and let running attempts finish within the grace.

        A second call ends the grace at once.
        """
        if self._stopping:
            self._end_now.set()
        self._stopping = True
        self._claimer.stop()

    async def run(self) -> None:
        """Claim, run and settle jobs until `stop` is called, then end the session."""
        await self._worker_session.begin()
        settling = asyncio.create_task(self._settlements.run(), name="settlements")
        background = [
            asyncio.create_task(self._reconciler.run(), name="lease reconciler"),
            asyncio.create_task(self._worker_session.fence(), name="fence"),
            asyncio.create_task(self._sync_dependencies(), name="dependencies"),
        ]
        if self._engine.broker is not None:
            background.append(asyncio.create_task(self._engine.broker.tend(), name="broker"))
        try:
            with capture_logs(self._captures_logs):
                await self._until_left(asyncio.create_task(self._work(), name=ATTEMPTS))
        finally:
            for task in background:
                task.cancel()
            await self._settle_last(settling)
            # Bounded: a driver that swallows a cancellation must not keep the process.
            await asyncio.wait([settling, *background], timeout=SPARE)
            self._processes.close()
            await self._worker_session.end(LAST_CLOSE)
            log.info("worker.stopped", worker=self.name)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            await self._claimer.run(attempts)
            await self._running.finish(self._engine.settings.grace.total_seconds(), self._end_now)
            self._end_by = self._engine.clock.monotonic() + AFTER_GRACE - LAST_CLOSE - 2 * SPARE
            for running in await self._running.cancel_all():
                log.warning("job.still_running", job_id=running.job.id, task=running.job.task)
                self._settlements.give_back(running.claimed)
                self._left_behind.set()

    async def _until_left(self, working: asyncio.Task[None]) -> None:
        """Wait until every attempt has ended, or until the rest do not stop and their jobs were released."""
        leaving = asyncio.create_task(self._left_behind.wait())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.wait((working,))
            raise
        finally:
            leaving.cancel()
        if working.done():
            working.result()

    async def _sync_dependencies(self) -> None:
        """Exchange dependency states with the store and check for a deadlock, about once a second.

        An error only delays the exchange: the guards go on with the states they have.
        """
        while True:
            await self._engine.clock.sleep(BEAT_EVERY * (0.8 + 0.4 * self._engine.rng.random()))
            session = self._worker_session.session
            if session is None:
                continue
            try:
                await self._dependencies.sync(session)
                await self._deadlocks.check(session)
            except StoreError as error:
                log.info("dependency.sync_retrying", reason=str(error))
            except Exception:  # a bug here must not end the exchange
                log.exception("dependency.sync_failed")

    def _session_began(self) -> None:
        self._settlements.renew()
        queues = sorted(self._queues) if self._queues else "all"
        log.info("worker.started", worker=self.name, queues=queues, slots=self._slots.most)

    def _session_lost(self) -> None:
        """Drop all work without a write: the session was lost, so the store may give the jobs to others."""
        self._settlements.abandon()
        self._running.end_all("lost")
        self._wakeup.set()

    def _verdict_after_refusal(self, claimed: Claimed, reason: str) -> Verdict:
        """Return the verdict for a job whose settlement was refused.

        The text of *reason* may itself be what the store could not hold, so it is reduced to ASCII.
        """
        plain = reason[:500].encode("ascii", "backslashreplace").decode().replace("\x00", "")
        return self._engine.judge_failure(claimed, Failure.of("END_REFUSED", plain), timedelta())

    async def _settle_last(self, settling: asyncio.Task[None]) -> None:
        """Wait for the last write, up to the end of the time after the grace, then stop the writer."""
        left = self._end_by - self._engine.clock.monotonic()
        try:
            async with asyncio.timeout(max(SPARE, min(left, AFTER_GRACE))):
                await self._settlements.flushed()
        except TimeoutError:
            log.warning(
                "settlement.abandoned",
                jobs=self._settlements.backlog,
                reason="the store did not answer in time",
            )
        settling.cancel()
