"""`Job`: what a handler sees of the job it is running."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from holdfast.domain.job import Attempt, Claimed, JobId, JobRow, Lane, Lease
from holdfast.domain.lanes import Dependency
from holdfast.domain.moves import State
from holdfast.domain.validation import a_function, whole, word
from holdfast.domain.verdict import Complete
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.attempt_log import AttemptLog
from holdfast.engine.payload import decode_any
from holdfast.engine.ports import Clock, Store
from holdfast.engine.results import ANYTHING, ResultType, returned_by
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.logs import Log

log = Log("holdfast.worker")

#: Seconds before the result of a step is sent again, and the most that this grows to.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class DependencyCalls(Protocol):
    """A worker's guards, as a handler needs them."""

    async def enter_call(self, dependency: Dependency, given: Any) -> Any:
        """Raises `DependencyHeld` when its breaker is open."""

    async def leave_call(self, call: Any, error: BaseException | None, task: str) -> None: ...


_current: ContextVar[Job] = ContextVar("holdfast_job")


def current_job() -> Job:
    """The job that the calling handler runs for."""
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            "current_job() was called outside of a handler; call it in a task that a worker runs"
        ) from None


def job_of(task: Any) -> Job | None:
    """Return the job that an asyncio *task* works for, also where its handler has started the task. Python 3.11 cannot tell."""
    context = getattr(task, "get_context", None)
    return None if context is None else context().get(_current)


def current_log() -> AttemptLog | None:
    """Where the lines go that are said now, if a handler says them."""
    job = _current.get(None)
    return None if job is None else job.attempt_log()


class Awaited:
    """A job whose end a handler waits for. As long as it is due and queued, that is noted with the handler's own job, so that
    its worker knows which of its slots cannot go on. Outside of a handler this does nothing."""

    __slots__ = ("_id", "_job")

    def __init__(self, job_id: JobId) -> None:
        self._id, self._job = job_id, _current.get(None)

    def __enter__(self) -> Awaited:
        return self

    def seen(self, row: JobRow, now: datetime) -> None:
        if self._job is None:
            return
        waits = self._job.awaits = {} if self._job.awaits is None else self._job.awaits
        if row.state is State.QUEUED and row.run_at <= now:
            waits[self._id] = Lane(row.queue, row.task)
        else:
            waits.pop(self._id, None)

    def __exit__(self, *error: object) -> None:
        if self._job is not None and self._job.awaits:
            self._job.awaits.pop(self._id, None)


class DependencyCall:
    """A call of a dependency, or several that are judged as one, around which it stands: `async with job.dependency("bank"): …`.

    What the block raises is judged as that dependency's doing, and nothing else is. When its breaker is open the block is not
    entered: `DependencyHeld` puts the job off until it may be tried again, and burns no attempt.
    """

    __slots__ = ("_call", "_job", "dependency")

    def __init__(self, job: Job, dependency: Dependency) -> None:
        self._job, self.dependency = job, dependency
        self._call: Any = None

    async def __aenter__(self) -> DependencyCall:
        if self._job.calls is not None:  # outside of a worker there is nobody to ask or to tell
            self._call = await self._job.calls.enter_call(self.dependency, self._job.given)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        call, self._call = self._call, None
        if self._job.calls is not None and call is not None:
            await self._job.calls.leave_call(call, error, self._job.task)


class Job:
    """One attempt of one job, from inside its handler."""

    __slots__ = (
        "_artifact_store",
        "_claimed",
        "_clock",
        "_gateway_status",
        "_started",
        "_steps",
        "_store",
        "awaits",
        "calls",
        "cancelled",
        "completed",
        "given",
        "resources",
        "returns",
        "said",
    )

    def __init__(
        self,
        claimed: Claimed,
        store: Store,
        clock: Clock,
        started: float,
        resources: Any,
        artifact_store: ArtifactStore,
    ) -> None:
        self._claimed, self._store, self._clock, self._started = claimed, store, clock, started
        self._steps: dict[str, str] | None = None
        self._artifact_store = artifact_store
        self._gateway_status: int | None = None
        self.said: AttemptLog | None = None  #: what was said so far; most handlers say nothing
        self.cancelled = (
            False  #: set when the job was cancelled or its lease was lost; a sync handler should look
        )
        self.completed = False  #: set when `transaction()` has committed the job's end
        self.calls: DependencyCalls | None = None  #: the worker's guards of dependencies
        self.given: Any = None  #: leave of the worker's for a call of the dependency that the task names
        self.returns: ResultType | None = None  #: what its handler returns
        self.resources = resources  #: what `@app.lifespan` gave
        self.awaits: dict[JobId, Lane] | None = None  #: queued jobs that its handler waits for now

    @property
    def id(self) -> JobId:
        return self._claimed.lease.job_id

    @property
    def epoch(self) -> int:
        return self._claimed.lease.epoch

    @property
    def lease(self) -> Lease:
        return self._claimed.lease

    @property
    def attempt(self) -> int:
        return self._claimed.attempt

    @property
    def max_attempts(self) -> int:
        return self._claimed.max_attempts

    @property
    def generation(self) -> int:
        return self._claimed.generation

    @property
    def task(self) -> str:
        return self._claimed.lane.task

    @property
    def queue(self) -> str:
        return self._claimed.lane.queue

    @property
    def owner(self) -> str | None:
        return self._claimed.owner

    @property
    def gateway_status(self) -> int | None:
        """The HTTP status that the service behind this job answered with; set it, and the event `complete` tells it.

        Of an attempt that fails, the status is read from the exception. A handler in a process of its own cannot set it.
        """
        return self._gateway_status

    @gateway_status.setter
    def gateway_status(self, status: int) -> None:
        self._gateway_status = whole("gateway_status", status, 100, 599)

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the caller that enqueued it."""
        return self._claimed.trace

    async def attempts(self) -> list[Attempt]:
        """Those before this one, and this one."""
        return await self._store.attempts(self.id)

    @property
    def deadline_at(self) -> datetime | None:
        left = self._claimed.until_deadline
        return None if left is None else self._clock.now() + left

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do *function* once for this job: its result is recorded, and a later attempt gets it without a call.

        The result is stored as JSON and given back as the type that *function* says it returns; `PayloadError` when it
        would be another one. While the store is away it waits to be recorded, as long as the lease lasts. A step whose
        attempt lost its lease raises `LeaseLost` and records nothing.
        """
        given: object = function
        if inspect.iscoroutine(given):  # `job.step("mail", send(x))`: it would run in every attempt
            given.close()
        a_function(
            f"the step {name!r:.60}", function, "a function and its arguments: job.step(name, function, …)"
        )
        if self._steps is None:
            self._steps = await self._store.steps(self.id)
        returns = returned_by(function)
        if word("name", name) in self._steps:
            return returns.read(decode_any(self._steps[name]))
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        text = returns.write(result, f"the result of step {name!r}")
        await self._record(name, text)
        self._steps[name] = text
        return returns.read(decode_any(text))

    async def _record(self, name: str, text: str) -> None:
        """Until the store has answered: what the step did is done, and may have been paid for. The lease's epoch makes a
        second sending harmless, and the worker ends this attempt when the lease is over."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._store.record_step(self.lease, name, text)
            except StoreUnavailable as error:
                log.warning("step.retrying", job_id=self.id, step=name, reason=str(error), retry_in_s=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def dependency(self, name: str, shard: str = "") -> DependencyCall:
        """Mark the calls of one dependency: `async with job.dependency("bank"): …`, for a task that calls several."""
        return DependencyCall(self, Dependency(word("name", name), shard))

    async def progress(self, percent: float, message: str = "") -> None:
        """Say how far the work is. `LeaseLost` tells a handler that it works for nobody any more."""
        try:
            done = float(percent)
        except (TypeError, ValueError):
            raise UsageError(f"percent is {percent!r:.60}; it is a number, 0 to 100") from None
        await self._store.record_progress(self.lease, min(max(done, 0.0), 100.0), str(message)[:500])

    async def artifact(self, name: str, data: bytes) -> str:
        """Keep a file with this job, where the setting `artifacts` says; the reference to return or to pass on.

        `app.artifact(reference)` reads it. It is removed by retention, with the job's result. A file is of its attempt:
        a later attempt that writes one of the same name does not touch it.
        """
        return await self._artifact_store.keep_file(self.lease, name, data)

    def log(self, message: str, **facts: Any) -> None:
        """Say something that is kept with this attempt: `job.log("converted", pages=3)`."""
        self.attempt_log().add(self._clock.now(), "INFO", str(message), facts)

    def attempt_log(self) -> AttemptLog:
        if self.said is None:
            self.said = AttemptLog()
        return self.said

    @asynccontextmanager
    async def transaction(self, result: Any = None) -> AsyncIterator[Any]:
        """A connection of the store: your writes and the end of this job commit together, or not at all.

        On leaving the block the job is completed with *result*, fenced by its lease. `LeaseLost` rolls back.
        """
        returns = self.returns or ANYTHING
        text = await self._artifact_store.keep_result(self.lease, returns.write(result, "the result"))
        async with self._store.transaction() as connection:
            yield connection
            spent = self._clock.monotonic() - self._started
            end = Complete(text, self._gateway_status)
            await self._store.complete_in(connection, self.lease, end, timedelta(seconds=spent))
        self.completed = True


#: The default for a handler's job parameter, `*, job: Job = THIS_JOB`: tells a type checker that callers do not pass it.
THIS_JOB: Job = cast(Job, None)


def run_as(job: Job) -> Any:
    """Make *job* the current one of this context; the answer undoes it."""
    return _current.set(job)
