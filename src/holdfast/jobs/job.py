"""The values that engine and stores exchange: new jobs, leases, claimed jobs, settlements, job rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NewType

from holdfast.errors import UsageError
from holdfast.jobs.moves import State
from holdfast.jobs.precondition import Version
from holdfast.jobs.verdict import Failure, Verdict

JobId = NewType("JobId", str)


def named(job_id: object) -> JobId:
    """Return *job_id*, or raise `UsageError` if it is not a string. The job need not exist."""
    if not isinstance(job_id, str):
        raise UsageError(
            f"a job is named by its id, a text, and not by {job_id!r:.60}; of a handle it is .id"
        )
    return JobId(job_id)


SessionId = NewType("SessionId", int)

#: What an attempt costs unless its task or its handler says otherwise. It is not stored.
ORDINARY_COST = 1.0


class Lane(NamedTuple):
    """The unit of claims, holds and limits: a queue × a task × the dependency it calls × a shard of that.

    The jobs of a lane are queued together, so a hold on a lane never has to skip single jobs.
    """

    queue: str
    task: str
    dependency: str = ""
    shard: str = ""
    fair: bool = False  #: its jobs have owners, which take turns

    @property
    def label(self) -> str:
        """The name in commands: queue/task, queue/task@dependency or queue/task@dependency#shard."""
        dependency = f"@{self.dependency}" if self.dependency else ""
        return f"{self.queue}/{self.task}{dependency}" + (f"#{self.shard}" if self.shard else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The options that the jobs of one enqueue share. Durations become moments by the store's clock."""

    lane: Lane
    owner: str | None = None
    priority: int = 0  #: higher runs first
    max_attempts: int = 1
    max_crashes: int = 3
    delay: timedelta | None = None
    run_at: datetime | None = None  #: a moment instead of *delay*
    deadline: timedelta | None = None
    deadline_at: datetime | None = None  #: a moment instead of *deadline*
    start_within: timedelta | None = None
    timeout: timedelta | None = None  #: hard limit of one attempt
    key: str | None = None  #: jobs with the same key run one at a time …
    key_slots: int = 1  #: … or this many at a time
    dedupe: bytes | None = None  #: digest of the dedupe key within its scope
    #: how long a complete job counts as a duplicate of new ones; None: as long as it is kept
    dedupe_for: timedelta | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None  #: W3C traceparent of the caller
    version: int = 1  #: version of the payload


class NewJob(NamedTuple):
    """A job to be stored. The caller makes the id, so that it can repeat an enqueue whose answer was lost."""

    id: JobId
    payload: str  #: JSON object of arguments by name
    spec: JobSpec


class Edit(NamedTuple):
    """New arguments for a job that is retried."""

    payload: str
    version: int
    names: tuple[str, ...]  #: the arguments that differ


class JobBatch(Sequence[NewJob]):
    """Many new jobs with one spec, stored as columns: a tuple per job would burden the garbage collector."""

    __slots__ = ("ids", "payloads", "spec")

    def __init__(self, ids: list[JobId], payloads: list[str], spec: JobSpec) -> None:
        self.ids, self.payloads, self.spec = ids, payloads, spec

    @classmethod
    def split(cls, jobs: Sequence[NewJob]) -> list[JobBatch]:
        """Return *jobs* in their order as batches of one spec each."""
        if isinstance(jobs, JobBatch):
            return [jobs]
        batches: list[JobBatch] = []
        for job in jobs:
            if not batches or (batches[-1].spec is not job.spec and batches[-1].spec != job.spec):
                batches.append(cls([], [], job.spec))
            batches[-1].ids.append(job.id)
            batches[-1].payloads.append(job.payload)
        return batches

    def parts(self, most: int) -> Iterator[JobBatch]:
        """Yield pieces of at most *most* jobs."""
        if len(self.ids) <= most:
            yield self
            return
        for start in range(0, len(self.ids), most):
            yield JobBatch(self.ids[start : start + most], self.payloads[start : start + most], self.spec)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return JobBatch(self.ids[place], self.payloads[place], self.spec)
        return NewJob(self.ids[place], self.payloads[place], self.spec)


class Enqueued(NamedTuple):
    """The answer to an enqueue: the id of the new job, or of an earlier one with the same dedupe key."""

    id: JobId
    duplicate: bool = False


class AllNew(Sequence[Enqueued]):
    """The answer for a batch without duplicates. Its items are made when they are read."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Sequence[JobId]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, place: Any) -> Any:
        return AllNew(self._ids[place]) if isinstance(place, slice) else Enqueued(self._ids[place])

    def __iter__(self) -> Iterator[Enqueued]:
        return map(Enqueued, self._ids)


class Lease(NamedTuple):
    """The right to finish one attempt. The epoch is the fence: every claim increases it."""

    job_id: JobId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A worker process in the store. All its leases expire with it."""

    id: SessionId
    worker: str
    ttl: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A live worker process, as people see it."""

    name: str
    started_at: datetime
    expires_at: datetime  #: when it counts as lost, unless a heartbeat comes before
    queues: tuple[str, ...] | None  #: the queues it serves; None: the queues of its tasks
    leases: int  #: number of leases it holds
    waiting: int = 0  #: handlers that wait for queued jobs, if they occupy all of its slots; else 0
    version: str = ""  #: of Holdfast

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


class Claimed(NamedTuple):
    """A job that this worker has claimed and may run."""

    lease: Lease
    lane: Lane
    priority: int
    key: str | None
    payload: str
    attempt: int
    crashes: int
    generation: int
    until_deadline: timedelta | None
    waited: timedelta  #: how long it was queued
    # The fields after `waited` are fields of its spec. Stores read them by the columns of these names in `stores/columns.py`.
    max_attempts: int
    version: int
    owner: str | None
    timeout: timedelta | None
    start_within: timedelta | None
    trace: str | None


class Settlement(NamedTuple):
    """The end of one attempt, to be recorded by the store."""

    lease: Lease
    verdict: Verdict
    attempt: int = 0  #: the attempt number at the claim, for the event
    duration: timedelta = timedelta()
    logs: tuple[str, ...] = ()  #: the log lines of the attempt, if they are to be stored
    lane: Lane | None = None  #: the lane of the job; None: the store looks it up
    waited: timedelta = timedelta()  #: how long the job had been queued at the claim
    cost: float = ORDINARY_COST  #: what the attempt cost


class Expired(NamedTuple):
    """A lease that has expired, with the facts from which its verdict is judged."""

    lease: Lease
    lane: Lane
    attempt: int
    max_attempts: int
    crashes: int
    max_crashes: int
    worker: str
    overran: bool  #: its worker is live, but the attempt has passed its hard timeout


class StuckJob(NamedTuple):
    """An attempt that runs for too long on a live worker. Reclaiming takes this value."""

    found: Expired
    longer_than: timedelta  #: the limit that its running time exceeds

    @property
    def id(self) -> JobId:
        return self.found.lease.job_id

    @property
    def epoch(self) -> int:
        return self.found.lease.epoch

    @property
    def task(self) -> str:
        return self.found.lane.task

    @property
    def queue(self) -> str:
        return self.found.lane.queue

    @property
    def attempt(self) -> int:
        return self.found.attempt

    @property
    def max_attempts(self) -> int:
        return self.found.max_attempts

    @property
    def worker(self) -> str:
        return self.found.worker


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as people see it: its public columns (E3a)."""

    id: JobId
    task: str
    queue: str
    owner: str | None
    priority: int
    state: State
    generation: int
    epoch: int
    attempt: int
    max_attempts: int
    crashes: int
    run_at: datetime
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_attempt_at: datetime | None
    updated_at: datetime
    deadline_at: datetime | None
    expired_at: datetime | None
    leased_by: str | None
    lease_expires_at: datetime | None
    error_code: str | None
    error_message: str | None
    last_failure: dict[str, Any] | None
    retry_type: str  #: the cause of its next or last attempt: MANUAL after a manual retry, else AUTOMATIC
    manual_retry_count: int
    result: Any
    tags: tuple[str, ...]
    payload: Any
    progress: dict[str, Any] | None = None
    key: str | None = None
    artifact: str | None = None  #: the reference of a result that was too large for the row

    @property
    def version(self) -> Version:
        return Version.of(self.state, self.generation, self.epoch, self.manual_retry_count, self.updated_at)

    @property
    def failed_at(self) -> datetime | None:
        return self.finished_at if self.state is State.FAILED else None

    @property
    def is_retryable(self) -> bool:
        """Whether `retry` is likely to be accepted.

        A queued job can be retried while it is delayed and has not been retried manually since. The row does
        not know the time: the store refuses the retry of a delayed job that has come due.
        """
        if self.state is State.QUEUED:
            return self.run_at > self.updated_at and self.retry_type != "MANUAL"
        return self.state in (State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a job, recorded in the same transaction as the move."""

    id: int
    at: datetime
    kind: str
    job_id: JobId
    epoch: int
    attempt: int
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The record of one attempt; *outcome* is None while it is running."""

    job_id: JobId
    epoch: int
    generation: int
    attempt: int
    worker: str | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None  #: complete, retry, failed, released, snoozed, reclaimed, timed_out, cancelled
    failure: Failure | None = None
    logs: tuple[str, ...] = ()  #: the log lines of its handler
    #: the task's `cost` and what the handler added; None while it runs and if it was cancelled or timed out, because its worker
    #: has not reported it
    cost: float | None = None

    @property
    def duration(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.ended_at else None

    @property
    def traceback(self) -> str | None:
        """The traceback of its failure, without source lines; None if there is none or it is not stored."""
        failure = self.failure
        if failure is None or failure.traceback is None:
            return None
        return failure.traceback.with_message(failure.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """The record of a failed job that will not be retried automatically."""

    id: JobId  #: the job's own id: a job has at most one
    task: str
    queue: str
    owner: str | None
    code: str
    message: str
    detail: str
    fingerprint: str
    attempts: int
    at: datetime
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters with the same cause."""

    fingerprint: str
    task: str
    code: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult:
    """A result that arrived after its job had timed out or was cancelled. It has no effect."""

    job_id: JobId
    epoch: int
    at: datetime
    reason: str
    outcome: str
    result: Any
    artifact: str | None = None  #: the reference of a result that was too large for the row


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Data that an attempt has put outside of the store: a large result, or a file of its handler."""

    job_id: JobId
    epoch: int
    reference: str
    name: str | None  #: the name that the handler gave it; None for the result
    bytes: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Selects jobs: all fields that are set must match."""

    states: tuple[State, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    owner: str | None = None
    tag: str | None = None
    args: dict[str, Any] = field(default_factory=dict)  #: arguments and the values they must have
    ids: tuple[JobId, ...] = ()
    created_after: datetime | None = None  #: inclusive
    created_before: datetime | None = None
    error_code: str | None = None
    key: str | None = None
    internal: bool = False  #: include the engine's own jobs, which otherwise must be named


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters: all fields that are set must match."""

    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    fingerprint: str | None = None
    owner: str | None = None
    ids: tuple[JobId, ...] = ()
    died_after: datetime | None = None  #: inclusive
    died_before: datetime | None = None
    internal: bool = False  #: include those of the engine's own jobs, which otherwise must be named
