"""A worker process: claims what there is room for, runs it, settles it, until told to stop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Claimed, JobId
from holdfast.domain.verdict import Failure, Verdict
from holdfast.engine.context import Job
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Threads
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.signals import AFTER_GRACE
from holdfast.worker.admission import LaneAdmission
from holdfast.worker.attempts import Executors, Middleware
from holdfast.worker.claiming import Claimer
from holdfast.worker.deadlocks import DeadlockDetector
from holdfast.worker.dependencies import BEAT_EVERY, Dependencies
from holdfast.worker.dispatched import DispatchedJobs
from holdfast.worker.lease_reconciler import LeaseReconciler
from holdfast.worker.log_capture import listening
from holdfast.worker.processes import COLD_START, ProcessPool
from holdfast.worker.running import RunningAttempts
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

#: The name of the task that holds the attempts. It outlives the worker when a handler does not stop.
ATTEMPTS = "holdfast-attempts"
#: Of the seconds after the grace: those that are kept for the end of the session, and for the process to end.
LAST_CLOSE, SPARE = 1.0, 0.5


class Worker:
    """One worker process. `run()` returns when `stop()` was called and everything is settled or given back.

    *cold_start* is how long an attempt with a hard timeout waits for its child process before its job is given back.
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
        self._hears = settings.keep_logs != "never"
        self._slots = Slots(
            concurrency or settings.concurrency, settings.min_concurrency, engine.clock.monotonic()
        )
        self._tenure = WorkerSession(engine, threads, self._queues, begun=self._begun, lost=self._lost)
        self._processes = ProcessPool(
            pool,
            keep_logs=self._hears,
            most_jobs=settings.child_jobs,
            most_memory=settings.child_memory,
        )
        self._settler = SettlementWriter(engine, self._ring, self._refused)
        self._dependencies = Dependencies(engine, self._ring)
        self._under_way = RunningAttempts(
            engine,
            Executors(engine, pool, self._processes, list(middleware), cold_start),
            self._settler,
            self._dependencies,
            self._slots,
            resources=resources,
            freed=self._ring,
        )
        self._waiting = DeadlockDetector(engine, self._under_way, self._slots, self._queues)
        self._watch = LeaseReconciler(engine, self._tenure, self._under_way, self._settler)
        broker = engine.broker
        source = engine.store if broker is None else DispatchedJobs(engine, broker)
        self._claiming = Claimer(
            engine,
            self._tenure,
            self._slots,
            ServedLanes(engine, self._queues),
            LaneAdmission(engine, self._dependencies, self._settler.put, source, self._settler.receipts),
            source,
            self._under_way,
            self._settler,
            self._watch,
            idle=self.stop if until_idle else None,
        )
        self._stopping = False
        self._hurry = asyncio.Event()
        self._leaving = asyncio.Event()  #: what still runs does not stop, and is left behind
        self._end_by = math.inf  #: when the last write must be done with; set when the grace is over

    @property
    def name(self) -> str:
        return self._tenure.name

    def attempt_of(self, task: asyncio.Task[Any] | None) -> tuple[Job, Callable[..., Any]] | None:
        """Return the job that this *task* works for, and its handler. Any thread may ask."""
        return self._under_way.attempt_of(task)

    def awaited(self) -> list[JobId]:
        """Return the queued jobs that its handlers wait for, if they hold all slots; else none."""
        return self._waiting.awaited()

    def stop(self) -> None:
        """Stop claiming and let what runs finish within the grace; a second call ends at once, safely."""
        if self._stopping:
            self._hurry.set()
        self._stopping = True
        self._claiming.stop()

    async def run(self) -> None:
        await self._tenure.begin()
        settling = asyncio.create_task(self._settler.run(), name="settler")
        beside = [
            asyncio.create_task(self._watch.run(), name="watch"),
            asyncio.create_task(self._tenure.fence(), name="fence"),
            asyncio.create_task(self._tend(), name="dependencies"),
        ]
        if self._engine.broker is not None:
            beside.append(asyncio.create_task(self._engine.broker.tend(), name="broker"))
        try:
            with listening(self._hears):
                await self._until_left(asyncio.create_task(self._work(), name=ATTEMPTS))
        finally:
            for task in beside:
                task.cancel()
            await self._settle_last(settling)
            # Bounded: a driver that swallows a cancellation must not keep the process.
            await asyncio.wait([settling, *beside], timeout=SPARE)
            self._processes.close()
            await self._tenure.end(LAST_CLOSE)
            log.info("worker.stopped", worker=self.name)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            await self._claiming.run(attempts)
            await self._under_way.finish(self._engine.settings.grace.total_seconds(), self._hurry)
            self._end_by = self._engine.clock.monotonic() + AFTER_GRACE - LAST_CLOSE - 2 * SPARE
            for running in await self._under_way.insist():
                log.warning("job.still_running", job_id=running.job.id, task=running.job.task)
                self._settler.give_back(running.claimed)
                self._leaving.set()

    async def _until_left(self, working: asyncio.Task[None]) -> None:
        """Until every attempt has ended, or only those are left that do not stop: their jobs were given back."""
        leaving = asyncio.create_task(self._leaving.wait())
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

    async def _tend(self) -> None:
        """Keep in touch with the other workers about the dependencies, and about slots that wait. Whatever fails, the guards know what they know."""
        while True:
            await self._engine.clock.sleep(BEAT_EVERY * (0.8 + 0.4 * self._engine.rng.random()))
            session = self._tenure.session
            if session is None:
                continue
            try:
                await self._dependencies.tend(session)
                await self._waiting.look(session)
            except StoreError as error:
                log.info("dependency.sync_retrying", reason=str(error))
            except Exception:  # a bug of ours must not end the watch
                log.exception("dependency.sync_failed")

    def _ring(self) -> None:
        self._claiming.ring()

    def _begun(self) -> None:
        self._settler.renew()
        queues = sorted(self._queues) if self._queues else "all"
        log.info("worker.started", worker=self.name, queues=queues, slots=self._slots.most)

    def _lost(self) -> None:
        """The session ended under us: the work is no longer ours. Drop it, write nothing, begin again."""
        self._settler.abandon()
        self._under_way.end_all("lost")
        self._ring()

    def _refused(self, claimed: Claimed, reason: str) -> Verdict:
        """What becomes of a job whose end was refused. The reason may be what could not be stored: plain letters only."""
        plain = reason[:500].encode("ascii", "backslashreplace").decode().replace("\x00", "")
        return self._engine.judge_failure(claimed, Failure.of("END_REFUSED", plain), timedelta())

    async def _settle_last(self, settling: asyncio.Task[None]) -> None:
        """Wait for the last write, but not for ever."""
        left = self._end_by - self._engine.clock.monotonic()
        try:
            async with asyncio.timeout(max(SPARE, min(left, AFTER_GRACE))):
                await self._settler.flushed()
        except TimeoutError:
            log.warning(
                "settlement.abandoned", jobs=self._settler.backlog, reason="the store did not answer in time"
            )
        settling.cancel()
