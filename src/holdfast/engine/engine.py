"""What one process works with: a store, tasks, a clock, and how jobs are stored and their attempts judged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Protocol

from holdfast.engine.admission import Admission
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.coalesce import Coalescer
from holdfast.engine.dispatcher import Dispatcher
from holdfast.engine.named_request import NamedRequest, Repeated
from holdfast.engine.observers import Observers
from holdfast.engine.operation import BatchAction, Operation, OperationBatch
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.ports import ArtifactBackend, EnqueuesInTransaction, Store
from holdfast.engine.recovery import Recovery
from holdfast.engine.redacted_failure import presentable
from holdfast.engine.tracebacks import traced
from holdfast.errors import UsageError
from holdfast.jobs.codes import NONE_DECLARED, ErrorCode
from holdfast.jobs.job import Claimed, Enqueued, JobId, NewJob
from holdfast.jobs.machine import Clock, Ids, Rng
from holdfast.jobs.schedule import Schedule
from holdfast.jobs.verdict import Failure, Verdict
from holdfast.resilience.classify import classify
from holdfast.resilience.policy import judge_failure
from holdfast.tasks.settings import Settings
from holdfast.tasks.task import Task


class Closeable(Protocol):
    """Guards calls of dependencies that are made outside of a worker (`holdfast.worker.guarded_calls`)."""

    async def close(self) -> None: ...


class Engine:
    """A store, the tasks of the app, and the clock, randomness and ids that everything is decided with.

    The verbs that users call are in the namespaces (`holdfast.engine.jobs` and its neighbours). What is here, workers and
    maintenance need too: storing jobs, and judging attempts.
    """

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
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self.store, self.tasks, self.settings = store, tasks, settings
        self.clock, self.rng, self.ids = clock, rng, ids
        self.admission = admission or Admission()
        self.observers = observers or Observers()
        self.artifact_store = ArtifactStore(store, artifacts, settings.result_limit)
        self._enqueues: Coalescer[NewJob, Enqueued] = Coalescer(self._enqueue)
        self.recovery = Recovery(self)
        #: Each returns one line of text about every maintenance task of this process.
        self.health_lines: list[Callable[[], list[str]]] = []
        #: Actions of operations that another package carries out: each function does one batch.
        self.batches: dict[BatchAction, Callable[[Engine, Operation], Awaitable[OperationBatch]]] = {}
        self._make_calls = calls
        self._find_secret_keys = secret_keys
        self.codes = codes  #: error codes that the app declares
        self.schedules = schedules or {}  #: schedules that the app declares
        self.broker = broker  #: hands out due jobs where the app dispatches through a broker
        self.caller: Closeable | None = None  #: guards calls of dependencies outside of a worker

    @cached_property
    def outbound(self) -> OutboundCalls:
        """The client for URLs that users enter. It is made at its first use."""
        if self._make_calls is None:
            raise UsageError("no client for outbound calls is configured for this engine")
        return self._make_calls()

    def secret_keys(self) -> tuple[bytes, ...]:
        """Return what secrets are made from, newest first. Raises `Conflict` when the app has no key."""
        if self._find_secret_keys is None:
            raise UsageError("this engine has no key to make secrets from")
        return self._find_secret_keys()

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> Sequence[Enqueued]:
        """Store *jobs*, all or none, and return after the commit.

        With a *connection* they are part of the transaction that is open there, and are stored when the caller commits.
        """
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

    def moved(self, job_id: JobId) -> None:
        """Tell the broker that a person has moved a job."""
        if self.broker is not None:
            self.broker.moved(job_id)

    def _stored(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        if self.observers.any:
            self.observers.enqueued(jobs, answers)
        if self.broker is not None:
            self.broker.enqueued(jobs, answers)

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """Store *jobs*, unless a request of this name was answered before: then return its answers."""
        found = await self.store.enqueue_once(request, jobs, keep=keep)
        if not isinstance(found, Repeated):
            self._stored(jobs, found)
        return found

    def enqueue_sync(self, jobs: Sequence[NewJob], connection: Any) -> Sequence[Enqueued]:
        """Store *jobs* in the transaction that is open on a *connection* of the caller."""
        answers = self._in_transaction().enqueue_in_sync(connection, jobs)
        self.observers.enqueued(jobs, answers)
        return answers

    def _in_transaction(self) -> EnqueuesInTransaction:
        if not isinstance(self.store, EnqueuesInTransaction):
            raise UsageError("this store cannot enqueue inside your transaction; use SQLite or PostgreSQL")
        return self.store

    async def reject(self, job: NewJob, code: str, message: str | None = None) -> JobId:
        """Record a refused input as a failed job without a dead letter, and return its id."""
        failure = Failure.of(code, codes=self.codes)
        if message is not None:
            failure = Failure(code, message, failure.error_class)
        await self.store.reject(job, failure)
        self.observers.rejected(job, failure)
        return job.id

    # -- judging ----------------------------------------------------------------------------------------------------
    def judge(self, claimed: Claimed, error: BaseException, elapsed: timedelta) -> Verdict:
        """Return the verdict on an attempt that raised *error* after *elapsed*."""
        failure = traced(self.failure_of(error, claimed.lane.task), error)
        return self.judge_failure(claimed, failure, elapsed)

    def failure_of(self, error: BaseException, task: str) -> Failure:
        """Classify an exception that the handler of *task* raised."""
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
        """Return the verdict on an attempt that failed with *failure* after *elapsed*."""
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
