"""The running attempts of a worker: start them, settle and log their outcomes, and end them at a shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableSet
from datetime import timedelta
from typing import Any

from holdfast.attempt_log import AttemptLog
from holdfast.engine.context import Job, job_of
from holdfast.engine.engine import Engine
from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import Claimed, Lease
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.logging import Log
from holdfast.resilience.guard import CallPermit
from holdfast.worker.admission import AdmittedJob
from holdfast.worker.attempts import Executors, RunningAttempt
from holdfast.worker.dependencies import Dependencies, after_trial
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

MILLISECOND = timedelta(milliseconds=1)
#: How many logged tracebacks a worker remembers. Beyond that it forgets them all and logs each once more.
MOST_TRACEBACKS = 1000

#: How long after the grace a handler may swallow its cancellation, and how often it is cancelled again, in
#: seconds.
CANCEL_FOR, CANCEL_EVERY = 2.0, 0.25


class RunningAttempts:
    """The running attempts of one worker. *freed* is called whenever a slot becomes free."""

    def __init__(
        self,
        engine: Engine,
        executors: Executors,
        settlements: SettlementWriter,
        dependencies: Dependencies,
        slots: Slots,
        *,
        resources: Any,
        freed: Callable[[], None],
    ) -> None:
        self._engine, self._executors, self._settlements = engine, executors, settlements
        self._dependencies, self._slots = dependencies, slots
        self._resources, self._freed = resources, freed
        self._keep_logs = engine.settings.keep_logs
        self._logs_completions = log.is_enabled_for(logging.DEBUG)  #: completions are logged too
        self._logged_tracebacks: set[str] = set()  #: the keys of tracebacks that were logged
        self.running: dict[Lease, RunningAttempt] = {}
        #: ended, but their verdict waits until the store has recorded their trial
        self.ending: set[Lease] = set()
        self._leftovers: set[asyncio.Future[Any]] = set()
        self._ended = asyncio.Event()  #: set whenever an attempt ends

    @property
    def count(self) -> int:
        """The number of slots taken by attempts and by threads that outlived theirs."""
        return len(self.running) + len(self._leftovers)

    def start(self, admitted: list[AdmittedJob], attempts: asyncio.TaskGroup) -> None:
        """Start an attempt of each job, as a task of the group *attempts*."""
        store, clock, artifact_store = self._engine.store, self._engine.clock, self._engine.artifact_store
        now = clock.monotonic()
        for one, permit in admitted:
            cost = self._engine.tasks[one.lane.task].policy.cost
            job = Job(one, store, clock, now, self._resources, artifact_store, cost)
            job.calls, job.given = self._dependencies, permit
            running = RunningAttempt(one, job, now, permit)
            self.running[one.lease] = running
            if self._slots.adapts:
                self._slots.started(now)
            running.task = attempts.create_task(self._execute(running))

    async def _execute(self, running: RunningAttempt) -> None:
        """Run one attempt and pass its verdict on. No exception escapes."""
        claimed, permit, running.begun = running.claimed, running.permit, True
        if permit is not None:  # the time between claim and start says nothing about the dependency
            permit.began = self._engine.clock.monotonic()
        try:
            verdict = await self._executors.attempt(running)
        finally:
            self.running.pop(claimed.lease, None)
            now = self._engine.clock.monotonic()
            if self._slots.adapts:
                self._slots.ended(claimed.lane.task, now - running.started, now)
            if running.leftover is not None:
                self._hold_slot(running.leftover)
            self._ended.set()
            self._freed()
        if permit is not None:
            if permit.trial is None and permit.successor is None:
                if type(verdict) is Complete:
                    self._dependencies.answered(permit, now)
                else:
                    self._count_failure(claimed, permit, verdict, now)
            else:
                self.ending.add(claimed.lease)
                try:
                    verdict = await self._end_trial(permit, verdict)
                finally:
                    self.ending.discard(claimed.lease)
        if verdict is not None:
            spent = timedelta(seconds=now - running.started)
            logs = () if running.job.said is None else self._logs_of(running.job.said, verdict)
            self._settlements.put(running.job.settlement(verdict, spent, logs), claimed)
            if not isinstance(verdict, Complete) or self._logs_completions:
                breaker = self._dependencies.breaker_of(claimed.lane)
                log_outcome(claimed, verdict, spent, breaker, self._logged_tracebacks)
            if isinstance(verdict, RetryAfter) and verdict.failure.retry_after is not None:
                await self._dependencies.hold_back(claimed.lane, verdict.failure)
        elif running.job.completed:
            self._completed_already(running, timedelta(seconds=now - running.started))

    def _completed_already(self, running: RunningAttempt, spent: timedelta) -> None:
        """Report a job that the handler's own transaction completed, and send its logs.

        The logs travel with a second settlement, which changes nothing else.
        """
        claimed, captured = running.claimed, running.job.said
        end = running.job.settlement(Complete(None), spent)
        self._engine.observers.settled([(end, claimed)], [SettlementStatus.APPLIED])
        logs = () if captured is None else self._logs_of(captured, end.verdict)
        if logs:
            self._settlements.put(end._replace(duration=timedelta(), logs=logs))

    # -- the outcome for the dependency -------------------------------------------------------------------------------
    def _count_failure(
        self, claimed: Claimed, permit: CallPermit, verdict: Verdict | None, now: float
    ) -> None:
        """Count an attempt that did not complete for or against its dependency."""
        if isinstance(verdict, (RetryAfter, Bury)):
            self._dependencies.failed(permit, verdict.failure, now, job_id=claimed.lease.job_id)
        else:
            self._dependencies.end_without_outcome(permit, now)

    async def _end_trial(self, permit: CallPermit, verdict: Verdict | None) -> Verdict | None:
        """Count an attempt that was a trial or whose handler marks its calls.

        Return the verdict to settle.
        """
        call = permit.successor or permit
        if call is permit:
            match verdict:
                case Complete():
                    await self._dependencies.leave(call, None)
                case RetryAfter(_, failure) | Bury(failure):
                    await self._dependencies.leave(call, failure)
                case _:
                    await self._dependencies.abandon(call)
        return verdict if call.trial is None else after_trial(verdict, call.outcome, call.guard.dependency)

    # -- logs -----------------------------------------------------------------------------------------------------------
    def _logs_of(self, captured: AttemptLog, verdict: Verdict) -> tuple[str, ...]:
        """Return the captured log lines to store: by default those of failed attempts only."""
        match self._keep_logs:
            case "always":
                return captured.lines()
            case "failed" if isinstance(verdict, (RetryAfter, Bury)):
                return captured.lines()
        return ()

    # -- threads that outlive their attempt -----------------------------------------------------------------------------
    def _hold_slot(self, thread: asyncio.Future[Any]) -> None:
        """Keep the slot of a thread that outlives its attempt until it ends: it still uses resources."""
        if not thread.done():
            self._leftovers.add(thread)
            thread.add_done_callback(self._free_slot)

    def _free_slot(self, thread: asyncio.Future[Any]) -> None:
        self._leftovers.discard(thread)
        if not thread.cancelled():
            thread.exception()  # read it, so that asyncio does not log it: the verdict was given long ago
        self._freed()

    def attempt_of(self, task: asyncio.Task[Any] | None) -> tuple[Job, Callable[..., Any]] | None:
        """Return the job that this asyncio *task* works for and its handler. Thread-safe."""
        matching = [running.job for running in list(self.running.values()) if running.task is task]
        job = matching[0] if matching else job_of(task)
        return None if job is None else (job, self._engine.tasks[job.task].function)

    # -- ending -----------------------------------------------------------------------------------------------------------
    def end_all(self, reason: str) -> None:
        """Cancel every attempt because of *reason*."""
        for running in list(self.running.values()):
            running.end(reason)

    async def finish(self, grace: float, end_now: asyncio.Event) -> None:
        """Wait until all attempts have ended, the *grace* is over or *end_now* is set."""
        until = self._engine.clock.monotonic() + grace
        ending_now = asyncio.ensure_future(end_now.wait())
        try:
            while (
                self.running and not end_now.is_set() and (left := until - self._engine.clock.monotonic()) > 0
            ):
                self._ended.clear()
                ended = asyncio.ensure_future(self._ended.wait())
                await asyncio.wait((ended, ending_now), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
        finally:
            ending_now.cancel()

    async def cancel_all(self) -> list[RunningAttempt]:
        """Cancel every attempt, repeatedly if needed.

        Return those that do not stop; their verdicts are dropped.
        """
        self.end_all("shutdown")
        until = self._engine.clock.monotonic() + CANCEL_FOR
        while self.running and (left := until - self._engine.clock.monotonic()) > 0:
            self._ended.clear()
            try:
                async with asyncio.timeout(min(left, CANCEL_EVERY)):
                    await self._ended.wait()
            except TimeoutError:
                for running in self.running.values():
                    running.cancel()
        left_behind = list(self.running.values())
        for running in left_behind:
            running.end_reason = "lost"  # its verdict is dropped if it ends later
        self.running.clear()
        return left_behind


def log_outcome(
    claimed: Claimed, verdict: Verdict, spent: timedelta, breaker: str | None, logged_before: MutableSet[str]
) -> None:
    """Log the outcome of an attempt: completions at debug, retries and releases at info, failures as warning.

    Args:
        claimed: The job.
        verdict: How its attempt ended.
        spent: How long the attempt took.
        breaker: The state of its dependency's breaker, if it has one.
        logged_before: The keys of the tracebacks logged before. Each is logged once, and later lines refer to
            its key.
    """
    match verdict:
        case Complete(gateway_status=status):
            if log.is_enabled_for(logging.DEBUG):
                facts = _facts(claimed, spent, None, breaker)
                log.debug("job.completed", **facts | {"gateway_status": status})
        case RetryAfter(delay, failure):
            if log.is_enabled_for(logging.INFO):
                facts = _facts(claimed, spent, failure, breaker)
                wait = round(delay / MILLISECOND)
                log.info("job.retry_scheduled", **facts, retry_in_ms=wait, **_cause(failure, logged_before))
        case Bury(failure):
            if log.is_enabled_for(logging.WARNING):
                log.warning(
                    "job.failed", **_facts(claimed, spent, failure, breaker), **_cause(failure, logged_before)
                )
        case Release(_, reason):
            log.info("job.released", **_facts(claimed, spent, None, breaker), reason=reason)


def _facts(
    claimed: Claimed, spent: timedelta, failure: Failure | None, breaker: str | None
) -> dict[str, Any]:
    return {
        "job_id": claimed.lease.job_id,
        "task": claimed.lane.task,
        "queue": claimed.lane.queue,
        "attempt": claimed.attempt,
        "duration_ms": round(spent / MILLISECOND),
        "gateway_status": None if failure is None else failure.gateway_status,
        "error_code": None if failure is None else failure.code,
        "breaker": breaker,
    }


def _cause(failure: Failure, logged_before: MutableSet[str]) -> dict[str, Any]:
    """Return the technical reason, already without secrets, and the traceback."""
    facts: dict[str, Any] = {"reason": failure.detail or failure.message}
    traceback = failure.traceback
    if traceback is not None:
        facts["traceback_id"] = traceback.key
        if traceback.key not in logged_before:
            if len(logged_before) >= MOST_TRACEBACKS:
                logged_before.clear()
            logged_before.add(traceback.key)
            facts["traceback"] = traceback.with_message(failure.detail)
    return facts
