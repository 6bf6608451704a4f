"""The values the engine and the stores exchange: new jobs, leases, claimed jobs, settlements, and the row people see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NewType

from holdfast.domain.moves import State
from holdfast.domain.precondition import Version
from holdfast.domain.verdict import Failure, Verdict
from holdfast.errors import UsageError

JobId = NewType("JobId", str)


def named(job_id: object) -> JobId:
    """The id as somebody gave it. Which job it is, if any, the store knows."""
    if not isinstance(job_id, str):
        raise UsageError(
            f"a job is named by its id, a text, and not by {job_id!r:.60}; of a handle it is .id"
        )
    return JobId(job_id)


SessionId = NewType("SessionId", int)


class Lane(NamedTuple):
    """What is claimed, held and limited as one: a queue × a task × the dependency it calls × a shard of that.

    Jobs of a lane wait in one line, so holding a lane never means passing over some of its jobs.
    """

    queue: str
    task: str
    dependency: str = ""
    shard: str = ""
    fair: bool = False  #: its jobs have owners, who are served in turn

    @property
    def label(self) -> str:
        """Its name for people and commands: queue/task, queue/task@dependency, queue/task@dependency#shard."""
        dependency = f"@{self.dependency}" if self.dependency else ""
        return f"{self.queue}/{self.task}{dependency}" + (f"#{self.shard}" if self.shard else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the jobs of one enqueue have in common. Times are durations: the store's clock makes moments of them."""

    lane: Lane
    owner: str | None = None
    priority: int = 0  #: higher runs first
    max_attempts: int = 1
    max_crashes: int = 3
    delay: timedelta | None = None
    run_at: datetime | None = None  #: instead of *delay*: a moment that the caller named
    deadline: timedelta | None = None
    deadline_at: datetime | None = None  #: instead of *deadline*
    start_within: timedelta | None = None
    timeout: timedelta | None = None  #: hard limit of one attempt
    key: str | None = None  #: jobs of one key run one at a time …
    key_slots: int = 1  #: … or how many run at a time
    dedupe: bytes | None = None  #: digest of the dedupe key in its scope
    dedupe_for: timedelta | None = (
        None  #: how long a complete job stands in for new ones; None = while it is kept
    )
    tags: tuple[str, ...] = ()
    trace: str | None = None  #: W3C traceparent of the caller
    version: int = 1  #: of the payload


class NewJob(NamedTuple):
    """A call to be stored. The caller makes the id, so that an enqueue whose answer was lost may be sent again."""

    id: JobId
    payload: str  #: JSON object of arguments by name
    spec: JobSpec


class Edit(NamedTuple):
    """Other arguments for a job that is retried."""

    payload: str
    version: int
    names: tuple[str, ...]  #: the arguments that are not as they were


class JobBatch(Sequence[NewJob]):
    """Many calls with one spec, kept as columns: a tuple for each would keep the garbage collector busy."""

    __slots__ = ("ids", "payloads", "spec")

    def __init__(self, ids: list[JobId], payloads: list[str], spec: JobSpec) -> None:
        self.ids, self.payloads, self.spec = ids, payloads, spec

    @classmethod
    def split(cls, jobs: Sequence[NewJob]) -> list[JobBatch]:
        """*jobs* in their order, cut wherever the spec changes."""
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
        """Pieces of at most this many jobs."""
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
    """The answer to an enqueue: *duplicate* when an unfinished or complete twin stands in for the new job."""

    id: JobId
    duplicate: bool = False


class AllNew(Sequence[Enqueued]):
    """The answer for a batch in which no job had a twin; made as it is read."""

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
    """The right to finish one attempt. The epoch grows with every claim and never goes back: it is the fence."""

    job_id: JobId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A worker process as the store knows it. All its leases live and die with it."""

    id: SessionId
    worker: str
    ttl: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker process that lives, as everyone sees it."""

    name: str
    started_at: datetime
    expires_at: datetime  #: when it is taken for lost, unless it says before that it lives
    queues: tuple[str, ...] | None  #: which it serves; None: whichever its tasks are in
    leases: int  #: how many jobs it holds
    waiting: int = 0  #: handlers that wait for queued jobs, once they hold all of its slots

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


class Claimed(NamedTuple):
    """A job that is now ours to run."""

    lease: Lease
    lane: Lane
    payload: str
    attempt: int
    max_attempts: int
    crashes: int
    generation: int
    owner: str | None
    key: str | None
    timeout: timedelta | None
    until_deadline: timedelta | None
    waited: timedelta  #: since it was queued
    start_within: timedelta | None
    version: int
    trace: str | None
    priority: int = 0


class Settlement(NamedTuple):
    """One attempt's end, on its way to the store."""

    lease: Lease
    verdict: Verdict
    attempt: int = 0  #: as it was claimed, for the event
    duration: timedelta = timedelta()
    logs: tuple[str, ...] = ()  #: what was said during the attempt, where it is to be kept


class Expired(NamedTuple):
    """A lease that ran out, with what the judgement needs to know."""

    lease: Lease
    lane: Lane
    attempt: int
    max_attempts: int
    crashes: int
    max_crashes: int
    worker: str
    overran: bool  #: its worker lives, but the attempt passed its hard timeout


class StuckJob(NamedTuple):
    """An attempt that runs on for too long though its worker lives, as it was found: the right to take it back."""

    found: Expired
    longer_than: timedelta  #: it has run for more than this

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
    """A job as everyone sees it: the columns of SPEC E3a."""

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
    retry_type: str  #: how it came to its next or last attempt: MANUAL after a retry by hand, else AUTOMATIC
    manual_retry_count: int
    result: Any
    tags: tuple[str, ...]
    payload: Any
    progress: dict[str, Any] | None = None
    key: str | None = None
    artifact: str | None = None  #: where the result is, when it was too large for the row

    @property
    def version(self) -> Version:
        return Version.of(self.state, self.generation, self.epoch, self.manual_retry_count, self.updated_at)

    @property
    def failed_at(self) -> datetime | None:
        return self.finished_at if self.state is State.FAILED else None

    @property
    def is_retryable(self) -> bool:
        """Whether `retry` would be accepted now, as far as the row can tell: of a queued job, whether it was put off and
        nobody has asked for it since. The row does not know what time it is: one that has come due is in line, and refused."""
        if self.state is State.QUEUED:
            return self.run_at > self.updated_at and self.retry_type != "MANUAL"
        return self.state in (State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One move of one job, as it was recorded with the move itself."""

    id: int
    at: datetime
    kind: str
    job_id: JobId
    epoch: int
    attempt: int
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dispatch of a job, kept after it ended (or still running: *outcome* is then None)."""

    job_id: JobId
    epoch: int
    generation: int
    attempt: int
    worker: str | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None  #: complete, retry, failed, released, snoozed, reclaimed, timed_out, cancelled
    failure: Failure | None = None
    logs: tuple[str, ...] = ()  #: what its handler said, one line each

    @property
    def duration(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.ended_at else None

    @property
    def traceback(self) -> str | None:
        """Where its failure was raised, without source lines; None where nothing was raised, or it is not kept."""
        failure = self.failure
        if failure is None or failure.traceback is None:
            return None
        return failure.traceback.with_message(failure.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """The record of a job that will not be retried by itself."""

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
    """Dead letters of one cause."""

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
    """A result that came after its job had ended by deadline or by a person. It has no effect."""

    job_id: JobId
    epoch: int
    at: datetime
    reason: str
    outcome: str
    result: Any
    artifact: str | None = None  #: where the result is, when it was too large for the row


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Something an attempt has put outside of the store: a large result, or a file of its handler's own."""

    job_id: JobId
    epoch: int
    reference: str
    name: str | None  #: what the handler called it; None for the result
    bytes: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs: all that are given must match."""

    states: tuple[State, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    owner: str | None = None
    tag: str | None = None
    args: dict[str, Any] = field(default_factory=dict)  #: arguments that must be equal
    ids: tuple[JobId, ...] = ()
    created_after: datetime | None = None  #: at it or later
    created_before: datetime | None = None
    error_code: str | None = None
    key: str | None = None
    internal: bool = False  #: with the engine's own jobs, which are left out unless they are named


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    fingerprint: str | None = None
    owner: str | None = None
    ids: tuple[JobId, ...] = ()
    died_after: datetime | None = None  #: at it or later
    died_before: datetime | None = None
    internal: bool = False  #: with those of the engine's own jobs, which are left out unless they are named
