"""One attempt of one job: decode its arguments, call the handler, and turn the outcome into a verdict.

No exception of a handler escapes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.engine.context import Job, run_as
from holdfast.engine.engine import Engine
from holdfast.engine.redacted_failure import presentable
from holdfast.engine.tracebacks import traced
from holdfast.errors import DependencyHeld, LeaseLost, PayloadError, Snooze
from holdfast.jobs.job import Claimed
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, Verdict
from holdfast.logging import Log
from holdfast.resilience.guard import CallPermit
from holdfast.tasks.payload import UnreadablePayload, decode_any, encode, size
from holdfast.tasks.task import Task
from holdfast.values.duration import duration
from holdfast.worker.processes import ChildNotReady, ProcessPool

#: A middleware wraps every attempt. It receives the job and a function that continues, and returns that
#: function's result.
Middleware = Callable[[Job, Callable[[], Awaitable[Any]]], Awaitable[Any]]


log = Log("holdfast.worker")

_NO_RESULT = Complete("null")
#: How long a job waits whose child process was not ready in time.
AGAIN_SOON = timedelta(seconds=1)


class _TooLarge(NamedTuple):
    """A result that is too large for the job's row and must be stored as an artifact first."""

    text: str


class RunningAttempt:
    """An attempt that is running, and the means to end it from outside."""

    __slots__ = (
        "begun",
        "child",
        "claimed",
        "end_reason",
        "job",
        "kill",
        "leftover",
        "permit",
        "started",
        "task",
    )

    def __init__(self, claimed: Claimed, job: Job, started: float, permit: CallPermit | None = None) -> None:
        self.claimed, self.job, self.started = claimed, job, started
        self.permit = permit  #: the permit to call its dependency
        self.task: asyncio.Task[Any] | None = None
        self.begun = False  #: a task cancelled before its first step would never run, and never clean up
        self.child: Any = None  #: the child process that is ready to run its handler
        self.kill: Callable[[], None] | None = None  #: ends a child process
        self.leftover: asyncio.Future[Any] | None = None  #: the thread it runs in, which cannot be stopped
        self.end_reason: str | None = None  #: why it is being ended: timeout, shutdown, lost

    def end(self, reason: str) -> None:
        """Cancel the attempt because of *reason*. Only the first reason counts."""
        if self.end_reason is not None:
            return
        self.end_reason = reason
        self.job.cancelled = True  # a handler in a thread cannot be stopped: it must check this flag
        if self.kill is not None:
            self.kill()
        self.cancel()

    def cancel(self) -> None:
        """Cancel the asyncio task, again if the handler swallowed an earlier cancellation."""
        if self.task is not None and self.begun:
            self.task.cancel()


class Executors:
    """Runs handlers in the event loop, in threads and in child processes, inside the middleware."""

    def __init__(
        self,
        engine: Engine,
        threads: Executor,
        processes: ProcessPool,
        middleware: list[Middleware],
        cold_start: float | None,
    ) -> None:
        self._engine, self._threads, self._processes = engine, threads, processes
        self._middleware, self._cold_start = middleware, cold_start
        self._limit = engine.settings.result_limit
        self._pid = os.getpid()

    async def attempt(self, running: RunningAttempt) -> Verdict | None:
        """Run the handler and return its verdict.

        Return None if nothing may be written: the lease was lost, or the handler's own transaction completed
        the job.
        """
        if running.end_reason is not None:  # ended before it began
            return None if running.end_reason == "lost" else Release()
        claimed = running.claimed
        if claimed.until_deadline is not None or claimed.start_within is not None:
            early = self._too_late(claimed)
            if early is not None:
                return early
        task = self._engine.tasks[claimed.lane.task]
        timer = None
        try:
            args, kwargs = self._arguments(task, claimed)
            if task.signature.takes_job:
                kwargs["job"] = running.job
            running.job.returns = task.returns
            run_as(running.job)
            if task.policy.execute == "process":
                running.child = await self._processes.take(
                    task, self._cold_start if claimed.timeout else None
                )
            if claimed.timeout is not None:
                timer = asyncio.get_running_loop().call_later(
                    claimed.timeout.total_seconds(), running.end, "timeout"
                )
            if task.policy.execute == "async" and not self._middleware:
                result = await task.function(*args, **kwargs)
            else:
                result = await self._call(task, running, args, kwargs)
            completed = _NO_RESULT if result is None else self._completed(task, result)
            if isinstance(completed, _TooLarge):
                kept = await self._engine.artifact_store.keep_result(claimed.lease, completed.text)
                completed = Complete(kept)
            verdict: Verdict = completed
        except asyncio.CancelledError as error:
            verdict = self._ended(running, error)
        except BaseException as error:
            verdict = self._raised_safely(running, error)
        finally:
            if timer is not None:
                timer.cancel()
            if os.getpid() != self._pid:
                os._exit(0)  # the handler forked and its child returned here: it is no worker
            if running.child is not None:  # it was not called
                self._processes.give(running.child)
        if running.job.completed or running.end_reason == "lost":
            return None
        if running.job.gateway_status is not None and isinstance(verdict, Complete):
            verdict = replace(verdict, gateway_status=running.job.gateway_status)
        return verdict

    def _too_late(self, claimed: Claimed) -> Verdict | None:
        if claimed.until_deadline is not None and claimed.until_deadline < timedelta():
            return Bury(Failure.of("TIMEOUT"))
        if (
            claimed.start_within is not None
            and claimed.attempt == 1
            and claimed.waited > claimed.start_within
        ):
            return Bury(Failure.of("STARTED_TOO_LATE"))
        return None

    async def _call(
        self, task: Task[Any, Any], running: RunningAttempt, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run the handler inside the middleware, in the executor that its task names."""

        async def run() -> Any:
            if task.policy.execute == "process":
                kwargs.pop("job", None)
                child, running.child = running.child, None
                child = child or await self._processes.take(task, None)  # a middleware that calls again
                return await self._processes.call(child, task, args, kwargs, running)
            if task.is_async:
                return await task.function(*args, **kwargs)
            call = partial(copy_context().run, task.function, *args, **kwargs)
            running.leftover = asyncio.get_running_loop().run_in_executor(
                self._threads, self._in_thread, call
            )
            return await asyncio.shield(running.leftover)

        call: Callable[[], Awaitable[Any]] = run
        for middleware in reversed(self._middleware):
            call = _wrapped(middleware, running.job, call)
        return await call()

    def _in_thread(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        # The asyncio task that awaits the thread would give these another meaning.
        except (StopIteration, GeneratorExit) as error:
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
        finally:
            if os.getpid() != self._pid:
                os._exit(0)  # the handler forked and its child returned here: it is no worker

    def _arguments(self, task: Task[Any, Any], claimed: Claimed) -> tuple[list[Any], dict[str, Any]]:
        payload = claimed.payload
        if claimed.version < task.policy.version:
            payload = self._upgraded(task, claimed)
        return task.signature.load(payload)

    def _upgraded(self, task: Task[Any, Any], claimed: Claimed) -> str:
        try:
            arguments = task.upgrade(decode_any(claimed.payload), claimed.version)
            return encode(arguments, what="the upgraded arguments")
        except Exception as error:
            raise UnreadablePayload(
                f"the stored arguments of {task.name}(), version {claimed.version}, cannot be upgraded: {error!r}"
            ) from error

    def _completed(self, task: Task[Any, Any], result: Any) -> Verdict | _TooLarge:
        if not task.policy.store_result:
            return Complete(None)
        try:
            text = task.returns.write(result, "the result")
        except PayloadError as error:
            return Bury(Failure.of("RESULT_INVALID", str(error)))
        if size(text) > self._limit:
            if self._engine.artifact_store.artifacts is not None:
                return _TooLarge(text)
            return Bury(Failure.of("RESULT_TOO_LARGE", f"{size(text):,} bytes; the limit is {self._limit:,}"))
        return Complete(text)

    def _ended(self, running: RunningAttempt, error: BaseException) -> Verdict:
        match running.end_reason:
            case "timeout":
                spent = running.claimed.timeout
                failure = traced(Failure.of("EXECUTION_TIMEOUT", f"stopped after {spent}"), error)
                return self._engine.judge_failure(running.claimed, failure, self._spent(running))
            case None:  # the handler cancelled itself
                return self._engine.judge(running.claimed, error, self._spent(running))
        return Release()

    def _raised_safely(self, running: RunningAttempt, error: BaseException) -> Verdict:
        """Return the verdict for *error*.

        A classification rule or an exception that itself raises fails only this job.
        """
        try:
            return self._raised(running, error)
        except Exception:
            log.exception("classification.failed", job_id=running.job.id, task=running.job.task)
            failure = Failure.of("UNKNOWN", f"{type(error).__name__}, and judging it failed too")
            return self._engine.judge_failure(running.claimed, failure, self._spent(running))

    def _raised(self, running: RunningAttempt, error: BaseException) -> Verdict:
        match error:
            case DependencyHeld():
                return Release(duration(error.after), str(error), wait_reason=WaitReason.BREAKER_OPEN)
            case ChildNotReady():
                return Release(AGAIN_SOON, str(error))
            case Snooze():
                return Release(duration(error.after), "snoozed", snoozed=True)
            case LeaseLost():
                running.end_reason = "lost"
                return Release()
            case UnreadablePayload():
                return Bury(presentable(traced(Failure.of("PAYLOAD_INVALID", str(error)), error)))
        if running.end_reason == "timeout":
            return self._ended(running, error)
        return self._engine.judge(running.claimed, error, self._spent(running))

    def _spent(self, running: RunningAttempt) -> timedelta:
        return timedelta(seconds=self._engine.clock.monotonic() - running.started)


def _wrapped(
    middleware: Middleware, job: Job, call: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    async def run() -> Any:
        return await middleware(job, call)

    return run
