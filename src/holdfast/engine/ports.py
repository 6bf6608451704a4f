"""What the engine needs from the outside world, and nothing more. The docstrings are the contract.

Every store passes the same suite (`tests/contract`), and follows the rules of docs/explanation/reliability.md:

- Rule 1: every write by a worker carries its lease.
- Rule 3: any write may be sent again because its answer was lost. It has its effect once, and records no second event.
- Rule 4: methods take durations, never a moment of "now". The store's own clock decides.
- Rule 5: a wake-up is a hint. The claim decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    runtime_checkable,
)

from holdfast.engine.dispatch import DispatchStore
from holdfast.engine.job_queries import JobQueries
from holdfast.engine.lane_store import Cap, Charge, LaneStore
from holdfast.engine.named_request import NamedRequest, Repeated
from holdfast.jobs.job import (
    ORDINARY_COST,
    Artifact,
    Claimed,
    Edit,
    Enqueued,
    Expired,
    JobId,
    Lane,
    Lease,
    NewJob,
    Session,
    Settlement,
)
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Failure, Verdict

if TYPE_CHECKING:  # a store names its outbox, but the engine does not depend on it
    from holdfast.engine.extensions import StoreExtensions
    from holdfast.outbox.port import OutboxStore

T = TypeVar("T")


class ArtifactBackend(Protocol):
    """A place for data that is too large for a row.

    The engine makes the names: they need no check, and no name is used twice. Every method may be called again. Every method
    fails as files do, with `OSError`, so that errors of all backends are classified alike.
    """

    async def put(self, name: str, data: bytes) -> str:
        """Store *data* and return the reference to it. It is stored as a whole or not at all, and is on disk on return."""

    async def get(self, reference: str) -> bytes:
        """Return the data of a reference. Raise `FileNotFoundError` if there is none, or none any more."""

    async def delete(self, reference: str) -> None:
        """Delete the data of a reference. It is no error if there is none."""


class SettlementStatus(StrEnum):
    """The answer of a store to a settlement."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it was applied before, and that answer was lost
    LATE = (
        "late"  # a deadline or a person has ended the job: this is kept as a late result and changes nothing
    )
    STALE = "stale"  # the lease was reclaimed: this is dropped, and the refusal is recorded


class Reclaim(NamedTuple):
    """A lease to end because its worker is lost or its attempt overran, and the verdict on that attempt."""

    lease: Lease
    verdict: Verdict
    crashed: bool  #: the worker was lost; False: the attempt overran
    by: str = ""  #: the person who reclaims it, if a person does
    cost: float = (
        ORDINARY_COST  #: what the attempt cost: its worker did not report it, so this is the task's `cost`
    )


class StuckAttempt(NamedTuple):
    """The lease of an attempt that runs too long although its lease holds, and the failure to record for it."""

    lease: Lease
    failure: Failure


class RetryOptions(TypedDict, total=False):
    """The options of `Store.retry`."""

    kind: Required[Kind]  #: the event to record: a manual retry, or a redrive, which needs a dead letter
    #: The names of the steps to run again. None keeps all results, or forgets all if there is an *edit*.
    forget: Collection[str] | None
    queue: str | None  #: the queue to move the job to; None keeps its queue
    edit: Edit | None  #: new arguments
    priority: int | None  #: the priority of the job from now on; None keeps its priority
    precondition: Precondition  #: which versions of the job may be moved
    stuck: (
        StuckAttempt | None
    )  #: the lease of an attempt that runs too long, and the failure to record for it
    charges: Sequence[Charge]  #: what it takes from quotas of manual retries, if it begins a generation


class MoveNotice(NamedTuple):
    """One move, as hooks receive it inside the transaction of the move."""

    kind: Kind
    job_id: JobId
    epoch: int
    attempt: int
    meta: Mapping[str, Any]


class Row(Protocol):
    """A row of a database. Its columns can be read by name and by place, and it can be unpacked."""

    def __getitem__(self, column: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


class JobFacts(NamedTuple):
    """A job, as a transaction sees it."""

    id: JobId
    task: str
    queue: str
    owner: str | None
    generation: int
    state: State


class Transaction(Protocol):
    """A transaction of the store: one that `Store.transact` opens, or that of a move."""

    @property
    def dialect(self) -> str:
        """The dialect that `execute` understands: "sqlite" or "postgres". That of the memory store is a SQLite database in RAM,
        which holds no jobs."""

    async def execute(self, sql: str, *params: Any) -> Sequence[Row]:
        """Run one statement in the dialect of the store (`?` on SQLite, `$1` on PostgreSQL) and return its rows.

        `holdfast.engine.tables.sql.fetch` runs one text on both.
        """

    async def now(self) -> datetime:
        """Return the time by the store's clock."""

    async def jobs(self, ids: Collection[JobId]) -> list[JobFacts]:
        """Return those of these jobs that exist, in no particular order."""

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        """Append an event that is no move, with *name* in its meta, and return whether it is new.

        A job has one event of this *kind* and *name*, however often and by however many processes it is recorded. Raises
        `UnknownJob` when there is no such job.
        """

    async def record(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        """Append an event of no job: of a lane, a dependency or a message. Names whose value is None are left out."""


#: Runs in the transaction of the moves that it receives. If it raises, none of them happens.
Hook = Callable[[Transaction, Sequence[MoveNotice]], Awaitable[None]]


class Store(Protocol):
    """Jobs at rest: the verbs, and the parts for everything else. One event loop may call all methods concurrently."""

    hooks: list[tuple[frozenset[Kind], Hook]]  #: each is called with the moves of its kinds
    extensions: StoreExtensions  #: what other packages add: migrations, and what purges do

    @property
    def queries(self) -> JobQueries: ...
    @property
    def lanes(self) -> LaneStore: ...
    @property
    def outbox(self) -> OutboxStore: ...
    @property
    def dispatch(self) -> DispatchStore: ...

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect. SQLite migrates its schema now.

        Raises:
            SchemaMismatch: The schema is missing, older, newer or of another family.
        """

    async def close(self) -> None:
        """Close the store."""

    def abandon(self) -> None:
        """Close without an event loop, because the loop in which the store was opened is gone. No acknowledged write is lost."""

    async def migrate(self) -> list[str]:
        """Migrate the schema to this version, and return the names of the migrations that ran. It may be called again."""

    async def now(self) -> datetime:
        """Return the time by the store's clock."""

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Store *jobs*, all or none, and return after the commit. A job whose id is known is not stored again."""

    async def enqueue_once(
        self, request: NamedRequest, jobs: Sequence[NewJob], *, keep: timedelta
    ) -> Sequence[Enqueued] | Repeated:
        """Store *jobs* and the *request* in one transaction, unless a request of this name is known.

        If one is known, store nothing and return what it has enqueued. Of two at the same time the second stores nothing. A
        request is known for *keep*.
        """

    async def reject(self, job: NewJob, failure: Failure) -> None:
        """Record a refused input: a job that is failed from the start, with attempt 0 and without a dead letter."""

    async def promote(self, limit: int) -> timedelta | None:
        """Queue up to *limit* deferred jobs that have come due, and return how long it is until the next one is due.

        Return None if none is known.
        """

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        """Open the session of a worker process.

        Args:
            worker: The name of the worker.
            ttl: How long the session lives without a heartbeat.
            queues: The queues that it serves. None: the queues of its tasks.
        """

    async def close_session(self, session: Session) -> None:
        """End the session. Its leases that are left can be reclaimed at once."""

    async def report_waiting(self, session: Session, handlers: int) -> None:
        """Record that *handlers* of this worker wait for queued jobs and hold all its slots. 0 says that a slot is free."""

    async def held(self, session: Session) -> set[Lease]:
        """Return the leases that the session holds. A lease that is missing was cancelled, timed out or reclaimed."""

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        """Move up to *limit* due jobs of these lanes from queued to processing, and return them.

        Return nothing for a session that has ended, and otherwise only if nothing is due. Fewer than *limit* jobs do not mean
        that no more are due: ask again. Lanes that are held are skipped. Levels of priority are served by their
        weights (`holdfast.resilience.fairness.Turns`), and the owners of a fair lane in turn.

        Args:
            session: The session that gets the leases.
            lanes: The lanes to claim from.
            limit: How many jobs to claim at most.
            caps: Limits for the jobs of all these lanes together, over all workers.
            trial: Claim although an open breaker holds the lanes. Other holds still count.
        """

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        """Move one job from queued to processing, whether or not it is due or its lane is held, and return it.

        Return None if the job is not queued in this generation.
        """

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        """Answer a verdict on a job that has ended, from a caller without a lease. The job does not change.

        Return LATE if a deadline or a person has ended the job: the verdict is kept as a late result, once for each
        generation. Return REPEATED if an attempt has ended it. Return STALE if it is in another generation, which is recorded,
        or has not ended.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        """Move each job from processing to complete, queued or failed as its verdict says, and return a status for each.

        An attempt that has ended otherwise does not change (E2a). The *logs* of a settlement are stored with its attempt, once.
        """

    async def complete_in(self, connection: Any, settlement: Settlement) -> None:
        """Complete a job inside the transaction of the caller.

        Raises:
            LeaseLost: The lease is not current any more. The caller rolls back.
        """

    def transaction(self) -> Any:
        """Return an async context manager for a connection in a transaction, which commits when the block ends."""

    async def transact(
        self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False, atomic: bool = True
    ) -> T:
        """Run *work* in a transaction of its own, and return its answer after the commit.

        Args:
            work: The function to run. It may await only its transaction, and may run again if its answer was lost.
            reads: Whether it only reads. Then it waits for no writer, and on PostgreSQL no transaction is begun for it.
            atomic: False if it is one statement and records no event. On PostgreSQL the statement then commits by itself.
        """

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        """Store the result of a step. Raise `LeaseLost` if the lease is not current any more."""

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        """Store the progress of a job. Raise `LeaseLost` if the lease is not current any more."""

    async def record_artifact(self, lease: Lease, reference: str, name: str | None, size: int) -> None:
        """Record an artifact that is about to be written, so that retention finds it whatever happens next.

        Raises:
            LeaseLost: The lease was reclaimed. After a deadline or a cancel the artifact of a late result is accepted.
        """

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        """Return up to *limit* leases that have expired: their session has ended, or their attempt passed its hard timeout by
        a margin."""

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        """Return up to *limit* attempts that run longer than allowed while their leases hold, oldest first.

        Attempts that passed their hard timeout are left out: they are in `expired`, or soon will be.

        Args:
            limits: How long an attempt may run, by task.
            limit: How many attempts to return at most.
            owner: Only attempts of jobs of this owner. None: of all.
            ids: Only attempts of these jobs. None: of all.
        """

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        """Move jobs from processing to queued or failed as their verdicts say, and return how many moved.

        Only leases count that are still current and still expired. With *stuck* they need not be expired.
        """

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        """Fail up to *limit* queued or processing jobs that passed their deadline (TIMEOUT), oldest first, and return their ids.

        If a hook raises, none of them fails. *skip* is the number of the oldest ones to leave out.
        """

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        """Remove jobs and what belongs to them once they were kept for long enough, and return the number of rows.

        Call it again until it returns 0. A job with artifacts stays until they are forgotten. A traceback is removed after
        the jobs, once no attempt refers to it and a day has passed since the last failure with it.

        Args:
            task: The task whose jobs are removed. None: all tasks but those in *but*. Events are removed only then, because
                tasks share them.
            keep: How long everything is kept.
            limit: How many rows to remove at most.
            but: The tasks to leave out.
        """

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        """Return up to *limit* artifacts of jobs that `purge` would remove now, or whose results it would remove."""

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        """Delete the records of *artifacts* whose data was deleted."""

    # -- manual moves -----------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Move a job from queued or processing to cancelled.

        Raises:
            Conflict: It is in another state.
            Changed: The *precondition* does not admit the version of the job. This is decided in the transaction of the move,
                here and below.
        """

    async def retry(self, job_id: JobId, by: str, **options: Unpack[RetryOptions]) -> int:
        """Queue a job to run now, and return its place in its lane, counted from 1. *by* is who retries it.

        A failed or cancelled job becomes a new generation. A job that is queued for later, or whose attempt is stuck, becomes
        due. An attempt is stuck if its lease has expired, or if its lease is current and is that of *stuck*. This move takes it
        from its worker. If it was the last attempt, the job fails and becomes a new generation.

        Raises:
            Conflict: The job is in another state.
            Changed: The *precondition* does not admit the version of the job.
            QuotaExceeded: The job would become a new generation, and one of the *charges* is refused.
        """

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Delete the dead letter of a job, which stays failed. Raise `Conflict` if it has none."""

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Return after *timeout* seconds, or earlier if these lanes may have got work. This is only a hint (rule 5)."""

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Return after *timeout* seconds, or earlier if the job may have ended. This is only a hint (rule 5)."""

    def heartbeat(self) -> HeartbeatConnection:
        """Return a connection that extends a session from a thread of its own, so that a busy event loop cannot delay it."""


class HeartbeatConnection(Protocol):
    """Extends a session from a thread."""

    def beat(self, session: Session) -> bool:
        """Extend the session and all its leases by its *ttl*. Return False if it has ended: it cannot be revived."""

    def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class EnqueuesDirectly(Protocol):
    """A store that can enqueue from any thread without an event loop."""

    @property
    def outbox(self) -> OutboxStore: ...
    def enqueue_sync(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Do the same as `Store.enqueue`, blocking."""


@runtime_checkable
class EnqueuesInTransaction(Protocol):
    """A store that can enqueue on a connection of the caller, inside the transaction of the caller."""

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Store *jobs* in the transaction that is open on an async *connection*. They exist once the caller commits."""

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Do the same on a sync *connection*."""


@runtime_checkable
class FoldsEvents(Protocol):
    """Queries of a store that keeps statistics."""

    async def fold(self, after: int, limit: int) -> Sequence[Row]:
        """Count the events from the row numbered *after* on, at most *limit* rows of them; see `fold.sql` for what is returned.

        Rows are counted once and none is missed, because the statement stops where `events` stops.
        """


@runtime_checkable
class ChecksWrites(Protocol):
    """A store that knows whether a write failed for lack of space."""

    async def check_writes(self) -> None:
        """If a write has failed because of the disk, try another one. Raise `StoreUnavailable` if that fails too."""


@runtime_checkable
class RegistersLanes(Protocol):
    """A store in which the first job of a new lane may have to wait for the transaction of another caller."""

    async def register(self, lanes: Collection[Lane]) -> None:
        """Create these lanes now, as far as that needs no wait. An enqueue creates those that are missing."""
