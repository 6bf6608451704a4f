"""`Job`: what a handler sees of the job it is running."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from holdfast.attempt_log import AttemptLog, find_current_log
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.ports import Store
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.jobs.job import ORDINARY_COST, Attempt, Claimed, JobId, JobRow, Lane, Lease, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Complete, Release, Verdict
from holdfast.logging import Log
from holdfast.tasks.payload import decode_any
from holdfast.tasks.results import ANYTHING, ResultType, returned_by
from holdfast.values.validation import a_function, number, whole, word

log = Log("holdfast.worker")

#: Seconds before the result of a step is sent again: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class DependencyCalls(Protocol):
    """The guards of a worker around calls of dependencies, as handlers use them."""

    async def enter_call(self, dependency: Dependency, given: Any) -> Any:
        """Begin a call and return it, for `leave_call`. *given* is the permit that the job has already.

        Raises:
            DependencyHeld: The breaker of the dependency is open.
        """

    async def leave_call(self, call: Any, error: BaseException | None, task: str) -> None:
        """End a call that raised *error*, or nothing."""


_current: ContextVar[Job] = ContextVar("holdfast_job")


def current_job() -> Job:
    """Return the job that the calling handler runs for. Raise `UsageError` outside of a handler."""
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            "current_job() was called outside of a handler; call it in a task that a worker runs"
        ) from None


def job_of(task: Any) -> Job | None:
    """Return the job that an asyncio *task* works for, also if its handler has started the task. On Python 3.11 return None."""
    context = getattr(task, "get_context", None)
    return None if context is None else context().get(_current)


def _log_of_current_job() -> AttemptLog | None:
    job = _current.get(None)
    return None if job is None else job.attempt_log()


find_current_log(_log_of_current_job)


class Awaited:
    """A job whose end a handler waits for: `with Awaited(job_id) as awaited: …`.

    While that job is due and queued, it is listed in the handler's own job, so that the worker knows which of its slots cannot
    continue. Outside of a handler this does nothing.
    """

    __slots__ = ("_id", "_job")

    def __init__(self, job_id: JobId) -> None:
        self._id, self._job = job_id, _current.get(None)

    def __enter__(self) -> Awaited:
        return self

    def seen(self, row: JobRow, now: datetime) -> None:
        """Record the state of the awaited job, as it was read at *now*."""
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
    """A block that calls a dependency: `async with job.dependency("bank"): …`. Several calls in it are judged as one.

    An exception of the block counts against that dependency, and only exceptions of such blocks do. If the breaker is open, the
    block raises `DependencyHeld` before it begins: the job is released until the breaker allows a try, and keeps its attempt.
    """

    __slots__ = ("_call", "_job", "dependency")

    def __init__(self, job: Job, dependency: Dependency) -> None:
        self._job, self.dependency = job, dependency
        self._call: Any = None

    async def __aenter__(self) -> DependencyCall:
        if self._job.calls is not None:  # outside of a worker there are no guards
            self._call = await self._job.calls.enter_call(self.dependency, self._job.given)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        call, self._call = self._call, None
        if self._job.calls is not None and call is not None:
            await self._job.calls.leave_call(call, error, self._job.task)


class Job:
    """One attempt of one job, from inside its handler."""

    __slots__ = (
        "_added_cost",
        "_artifact_store",
        "_claimed",
        "_clock",
        "_cost",
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
        cost: float = ORDINARY_COST,
    ) -> None:
        self._claimed, self._store, self._clock, self._started = claimed, store, clock, started
        self._steps: dict[str, str] | None = None
        self._artifact_store = artifact_store
        self._gateway_status: int | None = None
        self._cost, self._added_cost = cost, 0.0
        self.said: AttemptLog | None = (
            None  #: the log lines so far; None if there are none, as for most handlers
        )
        #: the job was cancelled or its lease was lost; a sync handler should check this and stop
        self.cancelled = False
        self.completed = False  #: `transaction()` has committed the end of the job
        self.calls: DependencyCalls | None = None  #: the worker's guards of dependencies
        self.given: Any = None  #: the worker's permit to call the dependency that the task names
        self.returns: ResultType | None = None  #: the return type of its handler
        self.resources = resources  #: what `@app.lifespan` yielded
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
        """The HTTP status of the service that this job called. Set it to have it in the event `complete`.

        For a failed attempt the status is read from the exception. A handler in a process of its own cannot set it.
        """
        return self._gateway_status

    @gateway_status.setter
    def gateway_status(self, status: int) -> None:
        self._gateway_status = whole("gateway_status", status, 100, 599)

    @property
    def cost(self) -> float:
        """What this attempt costs so far: the `cost` of its task, and what `add_cost` has added."""
        return self._cost + self._added_cost

    def add_cost(self, amount: float) -> None:
        """Add to what this attempt costs: `job.add_cost(0.012)`.

        The cost is recorded with the attempt when it ends, however it ends, and counted by the statistics. Quotas do not count it:
        they are charged before the attempt begins. A handler in a process of its own cannot add cost.

        Raises:
            UsageError: *amount* is not a number from 0 to a billion.
        """
        self._added_cost += number("amount", amount, 0, 1e9)

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the caller that enqueued it."""
        return self._claimed.trace

    async def attempts(self) -> list[Attempt]:
        """Return the attempts of this job so far, this one included."""
        return await self._store.queries.attempts(self.id)

    @property
    def deadline_at(self) -> datetime | None:
        """When the deadline of the job passes; None if it has none."""
        left = self._claimed.until_deadline
        return None if left is None else self._clock.now() + left

    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call *function* once for this job, and return its result. A later attempt gets the recorded result without a call.

        The result is stored as JSON and returned as the annotated return type of *function*. While the store is unavailable,
        the result waits to be recorded for as long as the lease lasts.

        Raises:
            PayloadError: The result would not come back as it was.
            LeaseLost: The attempt has lost its lease, and nothing was recorded.
        """
        given: object = function
        if inspect.iscoroutine(given):  # `job.step("mail", send(x))`: it would run in every attempt
            given.close()
        a_function(
            f"the step {name!r:.60}", function, "a function and its arguments: job.step(name, function, …)"
        )
        if self._steps is None:
            self._steps = await self._store.queries.steps(self.id)
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
        """Send the result until the store answers, because the step was done and may have cost money.

        The lease's epoch makes it harmless to send it twice. The worker ends this attempt when the lease is over.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._store.record_step(self.lease, name, text)
            except StoreUnavailable as error:
                log.warning("step.retrying", job_id=self.id, step=name, reason=str(error), retry_in_s=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def dependency(self, name: str, shard: str = "") -> DependencyCall:
        """Return a block for calls of one dependency, in a task that calls several: `async with job.dependency("bank"): …`."""
        return DependencyCall(self, Dependency(word("name", name), shard))

    async def progress(self, percent: float, message: str = "") -> None:
        """Report the progress of the work. Raise `LeaseLost` if the job is not this handler's any more."""
        try:
            done = float(percent)
        except (TypeError, ValueError):
            raise UsageError(f"percent is {percent!r:.60}; it is a number, 0 to 100") from None
        await self._store.record_progress(self.lease, min(max(done, 0.0), 100.0), str(message)[:500])

    async def artifact(self, name: str, data: bytes) -> str:
        """Store a file with this job in the place of the setting `artifacts`, and return a reference to it.

        `app.jobs.read_artifact(reference)` reads the file. Retention removes it with the result of the job. Each attempt has
        its own files: a later attempt that stores one of the same name does not overwrite it.
        """
        return await self._artifact_store.keep_file(self.lease, name, data)

    def log(self, message: str, **facts: Any) -> None:
        """Add a line to the log of this attempt: `job.log("converted", pages=3)`."""
        self.attempt_log().add(self._clock.now(), "INFO", str(message), facts)

    def attempt_log(self) -> AttemptLog:
        """Return the log of this attempt."""
        if self.said is None:
            self.said = AttemptLog()
        return self.said

    @asynccontextmanager
    async def transaction(self, result: Any = None) -> AsyncIterator[Any]:
        """Open a transaction on a connection of the store, in which your writes and the end of this job commit together.

        When the block ends, the job is completed with *result*, fenced by its lease.

        Raises:
            LeaseLost: The job is not this handler's any more, and the transaction was rolled back.
        """
        returns = self.returns or ANYTHING
        text = await self._artifact_store.keep_result(self.lease, returns.write(result, "the result"))
        async with self._store.transaction() as connection:
            yield connection
            spent = self._clock.monotonic() - self._started
            end = Complete(text, self._gateway_status)
            await self._store.complete_in(connection, self.settlement(end, timedelta(seconds=spent)))
        self.completed = True

    def settlement(self, verdict: Verdict, duration: timedelta, logs: tuple[str, ...] = ()) -> Settlement:
        """Return the end of this attempt, to be recorded by the store.

        A released attempt is as if it had not been made: it costs only what the handler has added.
        """
        claimed, cost = self._claimed, self._added_cost
        if not isinstance(verdict, Release):
            cost += self._cost
        return Settlement(
            claimed.lease, verdict, claimed.attempt, duration, logs, claimed.lane, claimed.waited, cost
        )


#: The default of a handler's job parameter, `*, job: Job = THIS_JOB`: type checkers then know that callers do not pass it.
THIS_JOB: Job = cast(Job, None)


def run_as(job: Job) -> Any:
    """Make *job* the current job of this context, and return a token that undoes it."""
    return _current.set(job)
