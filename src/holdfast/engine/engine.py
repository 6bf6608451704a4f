"""The verbs: what can be done with jobs, for every store and every caller."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol

from holdfast.domain.classify import classify
from holdfast.domain.codes import NONE_DECLARED, ErrorCode
from holdfast.domain.duration import Duration, format_duration
from holdfast.domain.internal import hides_internal, is_internal
from holdfast.domain.job import (
    Artifact,
    Attempt,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Enqueued,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
    NewJob,
    WorkerRow,
    named,
)
from holdfast.domain.moves import FINISHED, State
from holdfast.domain.operation import Operation, OperationAction, OperationBatch
from holdfast.domain.outbox import NewMessage
from holdfast.domain.policy import judge_failure
from holdfast.domain.validation import optional_span, whole
from holdfast.domain.verdict import Failure, Verdict
from holdfast.engine.admission import Admission
from holdfast.engine.api_store import NamedRequest, Repeated
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.coalesce import Coalescer
from holdfast.engine.context import Awaited
from holdfast.engine.control import Control
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.explanations import Explanations
from holdfast.engine.external import ExternalJobs
from holdfast.engine.manual import ManualActions
from holdfast.engine.observers import Observers
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.payload import decode_any
from holdfast.engine.ports import ArtifactBackend, Clock, EnqueuesInTransaction, Ids, Page, Rng, Store
from holdfast.engine.publishing import OutboxActions
from holdfast.engine.redacted_failure import presentable
from holdfast.engine.settings import Settings
from holdfast.engine.tasks import Task
from holdfast.engine.tracebacks import traced
from holdfast.errors import HoldfastError, ResultExpired, UsageError

#: How many jobs one page may hold, and how many rows of another kind one look may ask for.
MOST_JOBS, MOST_ROWS = 10_000, 1_000_000
#: How many stretches of jobs are looked through for the first that is not the engine's own.
LOOKS = 20


class Closeable(Protocol):
    """What guards calls outside of a worker, as far as the engine knows it (`holdfast.worker.guarded_calls`)."""

    async def close(self) -> None: ...


class Engine(ManualActions, Control, Explanations, ExternalJobs, OutboxActions):
    """One store, the tasks known here, and the clock, chance and ids that everything is decided with."""

    def __init__(
        self,
        store: Store,
        tasks: dict[str, Task[Any, Any]],
        settings: Settings,
        clock: Clock,
        rng: Rng,
        ids: Ids,
        artifacts: ArtifactBackend | None = None,
        admission: Admission | None = None,
        observers: Observers | None = None,
        calls: Callable[[], OutboundCalls] | None = None,
        broker: Dispatcher | None = None,
        secret_keys: Callable[[], tuple[bytes, ...]] | None = None,
        codes: Mapping[str, ErrorCode] = NONE_DECLARED,
    ) -> None:
        self.store, self.tasks, self.settings = store, tasks, settings
        self.clock, self.rng, self.ids = clock, rng, ids
        self.admission = admission or Admission()
        self.observers = observers or Observers()
        self.artifact_store = ArtifactStore(store, artifacts, settings.result_limit)
        self._enqueues: Coalescer[NewJob, Enqueued] = Coalescer(self._enqueue)
        self._publishes: Coalescer[NewMessage, None] = Coalescer(self._publish)
        self.reclaim_due = -math.inf  #: when this process should look for lost leases again
        #: Those who let jobs into line: each is told how soon something will be due that was put back here.
        self.promoters: list[Callable[[timedelta], None]] = []
        #: What the duties of this process say of themselves, a line each.
        self.health_lines: list[Callable[[], list[str]]] = []
        #: Operations that others than the engine carry out: what does one batch of them.
        self.batches: dict[OperationAction, Callable[[Engine, Operation], Awaitable[OperationBatch]]] = {}
        self._make_calls = calls
        self._find_secret_keys = secret_keys
        self.codes = codes  #: error codes that the app declares
        self.broker = broker  #: told of jobs that wait, where workers get them from there
        self.caller: Closeable | None = (
            None  #: guards calls of dependencies that are made outside of a worker
        )

    @cached_property
    def outbound(self) -> OutboundCalls:
        """The client for URLs that users gave; made when it is first asked for."""
        if self._make_calls is None:
            raise UsageError("this engine calls nobody")
        return self._make_calls()

    def secret_keys(self) -> tuple[bytes, ...]:
        """Return what secrets are made from, newest first. Raises `Conflict` where the app has no such key."""
        if self._find_secret_keys is None:
            raise UsageError("this engine has no secrets")
        return self._find_secret_keys()

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        """Store jobs; answered after the commit (the caller's own commit, where a *connection* is given)."""
        if connection is not None:
            answers = await self._in_transaction().enqueue_in(connection, jobs)
            self.observers.enqueued(jobs, answers)
            return answers
        if len(jobs) == 1:
            return [await self._enqueues.do(jobs[0])]
        return await self._enqueue(jobs) if jobs else []

    async def _enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        answers = await self.store.enqueue(jobs)
        self._stored(jobs, answers)
        return answers

    def _stored(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        self.observers.enqueued(jobs, answers)
        if self.broker is not None:
            self.broker.enqueued(jobs, answers)

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """`enqueue`, unless a request of this name was answered before."""
        found = await self.store.enqueue_once(request, jobs, keep=keep)
        if not isinstance(found, Repeated):
            self._stored(jobs, found)
        return found

    def enqueue_sync(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]:
        answers = self._in_transaction().enqueue_in_sync(connection, jobs)
        self.observers.enqueued(jobs, answers)
        return answers

    def _in_transaction(self) -> EnqueuesInTransaction:
        if not isinstance(self.store, EnqueuesInTransaction):
            raise UsageError("this store cannot enqueue inside your transaction; use SQLite or PostgreSQL")
        return self.store

    async def reject(self, job: NewJob, code: str, message: str | None = None) -> JobId:
        """Put a refused input on record as failed, without a dead letter."""
        failure = Failure.of(code, codes=self.codes)
        if message is not None:
            failure = Failure(code, message, failure.error_class)
        await self.store.reject(job, failure)
        self.observers.rejected(job, failure)
        return job.id

    # -- judging ----------------------------------------------------------------------------------------------------
    def judge(self, claimed: Claimed, error: BaseException, elapsed: timedelta) -> Verdict:
        """What becomes of a job whose attempt raised *error* after *elapsed*."""
        failure = traced(self.failure_of(error, claimed.lane.task), error)
        return self.judge_failure(claimed, failure, elapsed)

    def failure_of(self, error: BaseException, task: str) -> Failure:
        """What an exception of this task's handler means."""
        policy = self.tasks[task].policy
        return classify(
            error,
            task=task,
            policy=policy.retry,
            rules=policy.rules,
            now=self.clock.now(),
            codes=self.codes,
        )

    def judge_failure(self, claimed: Claimed, failure: Failure, elapsed: timedelta) -> Verdict:
        left = claimed.until_deadline
        return judge_failure(
            presentable(failure),
            self.tasks[claimed.lane.task].policy.retry,
            attempt=claimed.attempt,
            max_attempts=claimed.max_attempts,
            chance=self.rng.random(),
            elapsed=claimed.waited + elapsed,
            until_deadline=None if left is None else left - elapsed,
            now=self.clock.now(),
        )

    # -- looking ----------------------------------------------------------------------------------------------------
    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobRow:
        """Return the row of the job once it has ended; `TimeoutError` when that takes longer than *timeout*.

        On a clock that is moved by hand, time that really passes counts too: without it nothing might ever end the wait.
        """
        limit = optional_span("timeout", timeout)
        until = None if limit is None else self.clock.monotonic() + limit.total_seconds()
        loop = asyncio.get_running_loop()
        really = None if limit is None else loop.time() + limit.total_seconds()
        with Awaited(named(job_id)) as awaited:
            while True:
                row = await self.job(job_id)
                if row.state in FINISHED:
                    return row
                awaited.seen(row, self.clock.now())
                left = 1.0
                if until is not None and really is not None:
                    left = min(until - self.clock.monotonic(), really - loop.time())
                if left <= 0:
                    raise TimeoutError(await self._still(row, limit or timedelta()))
                await self.store.wait_for_end(row.id, min(left, 1.0))

    async def _still(self, row: JobRow, waited: timedelta) -> str:
        """Return that *row* has not ended, and why, where that can be found out."""
        state = f"job {row.id} is still {row.state} after {format_duration(waited)}"
        try:
            return f"{state}. {(await self.explain(row.id)).sentence}"
        except HoldfastError:
            return state

    async def result_of(self, row: JobRow) -> Any:
        """The result of a complete job, wherever it is. `ResultExpired` when retention has removed it."""
        if row.expired_at is not None:
            why = f"it was removed on {row.expired_at:%Y-%m-%d}"
            raise ResultExpired(f"the result of job {row.id}", why)
        return (
            row.result if row.artifact is None else decode_any(await self.artifact_store.read(row.artifact))
        )

    async def artifacts(self, job_id: str) -> list[Artifact]:
        return await self.store.artifacts(named(job_id))

    async def jobs(
        self, where: JobFilter, *, after: str | None = None, limit: int = 50, contents: bool = True
    ) -> Page:
        whole("limit", limit, 1, MOST_JOBS)
        page = await self.store.jobs(where, after=after, limit=limit, contents=contents)
        # Thousands of messages in a row would be an empty page.
        for _ in range(LOOKS if hides_internal(where) else 0):
            if page.rows or page.next is None:
                break
            page = await self.store.jobs(where, after=page.next, limit=limit, contents=contents)
        return page

    async def counts(self, *, internal: bool = True) -> dict[str, int]:
        """How many jobs are in each state, with the engine's own or without them."""
        counts = await self.store.counts()
        own = () if internal else await self._internal_tasks()
        for state in [State(name) for name, number in counts.items() if own and number]:
            hidden = await self.store.count(JobFilter(states=(state,), tasks=own))
            counts[state] = max(0, counts[state] - hidden)
        return counts

    async def _internal_tasks(self) -> tuple[str, ...]:
        return tuple({lane.task for lane in await self.store.lanes() if is_internal(lane.task)})

    async def workers(self) -> list[WorkerRow]:
        return await self.store.workers()

    async def events(self, *, after: int = 0, limit: int = 1000, job_id: str | None = None) -> list[Event]:
        whole("after", after, 0, 2**63 - 1)
        whole("limit", limit, 1, MOST_ROWS)
        only = None if job_id is None else named(job_id)
        return await self.store.events(after=after, limit=limit, job_id=only)

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await self.store.attempts(named(job_id))

    async def late_results(self, job_id: str) -> list[LateResult]:
        return await self.store.late_results(named(job_id))

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None = None, limit: int = 50, contents: bool = True
    ) -> list[DeadLetter]:
        whole("limit", limit, 1, MOST_ROWS)
        return await self.store.dead_letters(where, after=after, limit=limit, contents=contents)

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int = 50) -> list[DeadLetterGroup]:
        return await self.store.dead_letter_groups(where, limit)
