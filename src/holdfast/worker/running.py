"""The attempts of a worker that are under way: starts them, hands their verdicts over, ends them when it must."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast.domain.guard import CallPermit
from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.domain.verdict import Bury, Complete, RetryAfter, Verdict
from holdfast.engine.attempt_log import AttemptLog
from holdfast.engine.context import Job, job_of
from holdfast.engine.engine import Engine
from holdfast.engine.ports import SettlementStatus
from holdfast.logs import Log
from holdfast.worker.admission import AdmittedJob
from holdfast.worker.attempts import Executors, RunningAttempt
from holdfast.worker.dependencies import Dependencies, after_trial
from holdfast.worker.outcome_logs import log_outcome
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

#: How long, after the grace, a handler may go on swallowing its cancellation; how often it is cancelled again.
LAST_WORDS, INSIST_EVERY = 2.0, 0.25


class RunningAttempts:
    """*freed*: a slot is free again."""

    def __init__(
        self,
        engine: Engine,
        executors: Executors,
        settler: SettlementWriter,
        dependencies: Dependencies,
        slots: Slots,
        *,
        resources: Any,
        freed: Callable[[], None],
    ) -> None:
        self._engine, self._executors, self._settler = engine, executors, settler
        self._dependencies, self._slots = dependencies, slots
        self._resources, self._freed = resources, freed
        self._keep_logs = engine.settings.keep_logs
        self._loud = log.hears(logging.DEBUG)  #: completions are told, too
        self._shown: set[str] = set()  #: tracebacks that were logged
        self.running: dict[Lease, RunningAttempt] = {}
        self.ending: set[Lease] = set()  #: over, and not handed on yet: the store is told of their trials
        self._leftovers: set[asyncio.Future[Any]] = set()
        self._ended = asyncio.Event()  #: one has, since the last look

    @property
    def count(self) -> int:
        """How many slots are taken: by attempts, and by threads that outlived theirs."""
        return len(self.running) + len(self._leftovers)

    def start(self, admitted: list[AdmittedJob], attempts: asyncio.TaskGroup) -> None:
        store, clock, artifact_store = self._engine.store, self._engine.clock, self._engine.artifact_store
        now = clock.monotonic()
        for one, given in admitted:
            job = Job(one, store, clock, now, self._resources, artifact_store)
            job.calls, job.given = self._dependencies, given
            running = RunningAttempt(one, job, now, given)
            self.running[one.lease] = running
            self._slots.started(now)
            running.task = attempts.create_task(self._execute(running))

    async def _execute(self, running: RunningAttempt) -> None:
        """One attempt from its start to the hand-over of its verdict. No exception leaves it."""
        claimed, given, running.begun = running.claimed, running.given, True
        if given is not None:  # how long it stood here in line is not the dependency's doing
            given.began = self._engine.clock.monotonic()
        try:
            verdict = await self._executors.attempt(running)
        finally:
            self.running.pop(claimed.lease, None)
            now = self._engine.clock.monotonic()
            self._slots.ended(claimed.lane.task, now - running.started, now)
            if running.leftover is not None:
                self._mind(running.leftover)
            self._ended.set()
            self._freed()
        if given is not None:
            if given.trial is None and given.heir is None:
                if type(verdict) is Complete:
                    self._dependencies.answered(given, now)
                else:
                    self._tell_dependency(claimed, given, verdict, now)
            else:
                self.ending.add(claimed.lease)
                try:
                    verdict = await self._end_trial(given, verdict)
                finally:
                    self.ending.discard(claimed.lease)
        if verdict is not None:
            spent = timedelta(seconds=now - running.started)
            logs = () if running.job.said is None else self._logs_of(running.job.said, verdict)
            self._settler.put(Settlement(claimed.lease, verdict, claimed.attempt, spent, logs), claimed)
            if not isinstance(verdict, Complete) or self._loud:
                self._tell(claimed, verdict, spent)
            if isinstance(verdict, RetryAfter) and verdict.failure.retry_after is not None:
                await self._dependencies.hold_back(claimed.lane, verdict.failure)
        elif running.job.completed:
            self._completed_already(running, timedelta(seconds=now - running.started))

    def _completed_already(self, running: RunningAttempt, spent: timedelta) -> None:
        """The handler's own transaction has written the end: sent again it changes nothing, but brings the logs along."""
        claimed, said = running.claimed, running.job.said
        end = Settlement(claimed.lease, Complete(None), claimed.attempt, spent)
        self._engine.observers.settled([(end, claimed)], [SettlementStatus.APPLIED])
        logs = () if said is None else self._logs_of(said, end.verdict)
        if logs:
            self._settler.put(end._replace(duration=timedelta(), logs=logs))

    # -- what an attempt tells of its dependency ----------------------------------------------------------------------
    def _tell_dependency(
        self, claimed: Claimed, given: CallPermit, verdict: Verdict | None, now: float
    ) -> None:
        """How an attempt that did not go well speaks for its dependency."""
        if isinstance(verdict, (RetryAfter, Bury)):
            self._dependencies.failed(given, verdict.failure, now, job_id=claimed.lease.job_id)
        else:
            self._dependencies.end_without_outcome(given, now)

    async def _end_trial(self, given: CallPermit, verdict: Verdict | None) -> Verdict | None:
        """The same of an attempt that was a trial, or whose handler has marked its calls itself."""
        call = given.heir or given
        if call is given:
            match verdict:
                case Complete():
                    await self._dependencies.leave(call, None)
                case RetryAfter(_, failure) | Bury(failure):
                    await self._dependencies.leave(call, failure)
                case _:
                    await self._dependencies.abandon(call)
        return verdict if call.trial is None else after_trial(verdict, call.outcome, call.guard.dependency)

    # -- what is kept and said ------------------------------------------------------------------------------------------
    def _logs_of(self, said: AttemptLog, verdict: Verdict) -> tuple[str, ...]:
        """What is to be kept of it: that of failed attempts, unless the settings say otherwise."""
        match self._keep_logs:
            case "always":
                return said.lines()
            case "failed" if isinstance(verdict, (RetryAfter, Bury)):
                return said.lines()
        return ()

    def _tell(self, claimed: Claimed, verdict: Verdict, spent: timedelta) -> None:
        log_outcome(claimed, verdict, spent, self._dependencies.breaker_of(claimed.lane), self._shown)

    # -- threads that nobody can stop -----------------------------------------------------------------------------------
    def _mind(self, thread: asyncio.Future[Any]) -> None:
        """A thread that outlives its attempt keeps its slot until it ends: it still uses what a slot stands for."""
        if not thread.done():
            self._leftovers.add(thread)
            thread.add_done_callback(self._forget)

    def _forget(self, thread: asyncio.Future[Any]) -> None:
        self._leftovers.discard(thread)
        if not thread.cancelled():
            thread.exception()  # asked for: its verdict has been given long ago
        self._freed()

    def attempt_of(self, task: asyncio.Task[Any] | None) -> tuple[Job, Callable[..., Any]] | None:
        """Return the job that this *task* works for, and its handler. Any thread may ask."""
        own = [running.job for running in list(self.running.values()) if running.task is task]
        job = own[0] if own else job_of(task)
        return None if job is None else (job, self._engine.tasks[job.task].function)

    # -- ending -----------------------------------------------------------------------------------------------------------
    def end_all(self, reason: str) -> None:
        for running in list(self.running.values()):
            running.end(reason)

    async def finish(self, grace: float, hurry: asyncio.Event) -> None:
        """Let attempts finish within the *grace*, or until there is *hurry*."""
        until = self._engine.clock.monotonic() + grace
        rush = asyncio.ensure_future(hurry.wait())
        try:
            while (
                self.running and not hurry.is_set() and (left := until - self._engine.clock.monotonic()) > 0
            ):
                self._ended.clear()
                ended = asyncio.ensure_future(self._ended.wait())
                await asyncio.wait((ended, rush), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
        finally:
            rush.cancel()

    async def insist(self) -> list[RunningAttempt]:
        """Tell all to stop, and again those that swallow it. Those that do not stop at all: nobody waits for them."""
        self.end_all("shutdown")
        until = self._engine.clock.monotonic() + LAST_WORDS
        while self.running and (left := until - self._engine.clock.monotonic()) > 0:
            self._ended.clear()
            try:
                async with asyncio.timeout(min(left, INSIST_EVERY)):
                    await self._ended.wait()
            except TimeoutError:
                for running in self.running.values():
                    running.insist()
        left_behind = list(self.running.values())
        for running in left_behind:
            running.end_reason = "lost"  # whatever it answers later is nobody's
        self.running.clear()
        return left_behind
