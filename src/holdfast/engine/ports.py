"""What the engine needs from the outside world, and nothing more. The docstrings are the contract.

Every store passes the same suite (`tests/contract`). Store methods take durations, never a moment of "now":
the store's own clock decides (rule 4 of docs/explanation/reliability.md). Every write by a worker carries its lease (rule 1 of docs/explanation/reliability.md), and any write may be
sent again because its answer was lost: same effect once, and no second event (rule 3 of docs/explanation/reliability.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from holdfast.domain.duration import Duration, optional
from holdfast.domain.job import (
    Artifact,
    Attempt,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Edit,
    Enqueued,
    Event,
    Expired,
    JobFilter,
    JobId,
    JobRow,
    Lane,
    LateResult,
    Lease,
    NewJob,
    Session,
    Settlement,
    WorkerRow,
)
from holdfast.domain.moves import Kind
from holdfast.domain.precondition import UNCONDITIONAL, Precondition
from holdfast.domain.queue_position import QueuePosition
from holdfast.domain.stats import JobStats
from holdfast.domain.verdict import Complete, Failure, Verdict
from holdfast.engine.api_store import ApiStore
from holdfast.engine.dispatch import DispatchStore
from holdfast.engine.lane_store import Cap, LaneStore
from holdfast.engine.outbox_store import OutboxStore

T = TypeVar("T")


#: A limit that no list reaches.
EVERY = 2**31 - 1
#: Before every epoch: a late result of a job that never ran has a negative one.
FIRST = -(2**62)


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall-clock time, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that all processes of this machine share and nobody can set."""

    def boot_id(self) -> str:
        """Changes when the machine restarts, and the monotonic clock with it."""

    async def sleep(self, seconds: float) -> None: ...


class Rng(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""


class Ids(Protocol):
    def job_id(self) -> JobId:
        """A new id: unguessable, growing with time."""

    def worker_name(self) -> str:
        """Names this start of this process: never used before, even by a process of the same name."""

    def secret(self) -> bytes:
        """32 bytes that nobody can guess."""


class Threads(Protocol):
    def start(self, name: str, run: Callable[[], None]) -> Callable[[float | None], None]:
        """Run in a daemon thread; the answer is its `join(timeout)`."""


class ArtifactBackend(Protocol):
    """Where things go that are too large for a row. Names are ours: they need no check, and none is used for two things.

    All three may be sent again. They fail as files do, with `OSError`, so that one classification fits them all.
    """

    async def put(self, name: str, data: bytes) -> str:
        """Keep *data*, whole or not at all, on disk when this returns; the reference to it."""

    async def get(self, reference: str) -> bytes:
        """`FileNotFoundError` when it is not there, or not any more."""

    async def delete(self, reference: str) -> None:
        """Also when it is gone already."""


class SettlementStatus(StrEnum):
    """What became of a settlement."""

    APPLIED = "applied"
    REPEATED = "repeated"  # it had been applied already; its first answer was lost
    LATE = "late"  # the job had ended by deadline or by a person: kept as a late result, no effect
    STALE = "stale"  # the lease had been reclaimed: dropped, and the refusal is on record


class Reclaim(NamedTuple):
    lease: Lease
    verdict: Verdict
    crashed: bool  #: the worker was lost, as against an attempt that overran
    by: str = ""  #: who took it back, where that was a person


class StuckAttempt(NamedTuple):
    """An attempt that runs on for too long while its lease holds, and what it is called."""

    lease: Lease
    failure: Failure


class MoveNotice(NamedTuple):
    """What a hook is told of one move, inside the move's own transaction."""

    kind: Kind
    job_id: JobId
    epoch: int
    attempt: int
    meta: Mapping[str, Any]


class Transaction(Protocol):
    """The transaction a move is made in, as a hook sees it."""

    @property
    def dialect(self) -> str:
        """Whose words `execute` understands: "sqlite" or "postgres"; "memory" understands none."""

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run one statement in the store's own dialect (`?` on SQLite, `$1` on PostgreSQL)."""

    async def now(self) -> datetime:
        """By the store's clock."""


#: Runs in the transaction of the moves it is told about: raise, and none of them happened.
Hook = Callable[[Transaction, Sequence[MoveNotice]], Awaitable[None]]


@dataclass(frozen=True, slots=True, init=False)
class Retention:
    """How long what is finished is kept; None keeps it."""

    results: timedelta | None
    jobs: timedelta | None
    events: timedelta | None

    def __init__(
        self, results: Duration | None = None, jobs: Duration | None = None, events: Duration | None = None
    ) -> None:
        for name, kept in (("results", results), ("jobs", jobs), ("events", events)):
            object.__setattr__(self, name, optional(kept))


class Page(NamedTuple):
    rows: list[JobRow]
    next: str | None


class Store(LaneStore, ApiStore, OutboxStore, DispatchStore, Protocol):
    """Jobs at rest. Methods are safe to call concurrently from one event loop."""

    hooks: list[tuple[frozenset[Kind], Hook]]

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect. `SchemaMismatch` when the schema is missing, older, newer or of another family; SQLite migrates by itself."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close without an event loop: the one it was opened in is gone. What was acknowledged is stored already."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date and return the names of the migrations that ran. Twice in a row is harmless."""

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Store all or none; answered after the commit. A job whose id is known already is not stored twice."""

    async def reject(self, job: NewJob, failure: Failure) -> None:
        """Put a refused input on record: failed at once, attempt 0, no dead letter."""

    async def promote(self, limit: int) -> timedelta | None:
        """Let deferred jobs that are due into line; how long until the next one is due, if any is known."""

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(
        self, worker: str, ttl: timedelta, queues: Collection[str] | None = None
    ) -> Session:
        """A worker process begins. *queues* are those it serves; None: whichever its tasks are in."""

    async def extend(self, session: Session) -> bool:
        """Keep the session's leases for another *ttl*. False when it had ended already: it cannot come back."""

    async def close_session(self, session: Session) -> None:
        """End it; leases that are still open can be reclaimed at once."""

    async def report_waiting(self, session: Session, handlers: int) -> None:
        """Record how many *handlers* wait for queued jobs and hold all slots of this worker; 0: a slot is free."""

    async def held(self, session: Session) -> set[Lease]:
        """The leases this session still holds: what is missing was cancelled, timed out or reclaimed."""

    async def claim(
        self,
        session: Session,
        lanes: Sequence[Lane],
        limit: int,
        *,
        caps: Sequence[Cap] = (),
        trial: bool = False,
    ) -> list[Claimed]:
        """Queued → processing for up to *limit* due jobs of these lanes. Nothing for a session that has ended.

        Lanes that are held are passed by; a *trial* takes from behind a breaker that holds its lanes, but not from behind
        other holds. *caps* bound the jobs of all these lanes together, over all workers. Levels of priority are served by
        weight (`domain.fairness.Turns`), the owners of a fair lane in turn.
        """

    async def claim_job(self, session: Session, job_id: JobId, generation: int) -> Claimed | None:
        """This one job, due or not, passing by whatever holds its lane; None when it does not wait in this generation."""

    async def settle_unheld(
        self, job_id: JobId, generation: int, verdict: Verdict, *, by: str
    ) -> SettlementStatus:
        """What came for a job that has ended, from somebody who holds no lease of it. Nothing is changed.

        LATE: it had ended by deadline or by a person, and this is kept, once a generation. REPEATED: it had ended as it
        should. STALE: it lives in another generation by now (which is on record), or has not ended.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
        """Processing → complete, queued or failed. An attempt that ended otherwise before is not changed (E2a).

        The *logs* of a settlement are kept with its attempt, once.
        """

    async def complete_in(self, connection: Any, lease: Lease, end: Complete, duration: timedelta) -> None:
        """Complete inside the caller's own transaction. Raises `LeaseLost`: the caller then rolls back."""

    def transaction(self) -> Any:
        """An async context manager: a connection of this store inside a transaction that commits on leaving."""

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], *, reads: bool = False) -> T:
        """Do *work* in a transaction of its own. It may await only that transaction; it may be done again when its answer
        was lost. One that only *reads* waits for no writer."""

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        """Keep a step's result. Raises `LeaseLost` when the lease is no longer current."""

    async def steps(self, job_id: JobId) -> dict[str, str]: ...

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        """Raises `LeaseLost` when the lease is no longer current."""

    async def record_artifact(self, lease: Lease, reference: str, name: str | None, size: int) -> None:
        """Note what is about to be put outside, so that retention finds it, whatever happens next.

        Raises `LeaseLost` when the lease was reclaimed; after a deadline or a cancel the result may still come late.
        """

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        """Leases that ran out: their session ended, or the attempt passed its hard timeout by a margin."""

    async def stuck(
        self,
        limits: Mapping[str, timedelta],
        limit: int,
        *,
        owner: str | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Expired]:
        """Attempts that began longer ago than *limits* allow their tasks, while their leases hold; oldest first. Only those of
        *owner*, and only of the jobs with these *ids*, where that is said.

        Those that passed their hard timeout are not among them: they are `expired`, or soon will be.
        """

    async def reclaim(self, reclaims: Sequence[Reclaim], *, stuck: bool = False) -> int:
        """Processing → queued or failed, for leases that are still the current ones and still expired; those that are
        *stuck* need not be expired."""

    async def time_out(self, limit: int, *, skip: int = 0) -> list[JobId]:
        """Queued or processing → failed(TIMEOUT) for what passed its deadline, the oldest first; all of it or, where a hook
        raises, nothing. *skip* is how many of the oldest are left out."""

    async def purge(self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()) -> int:
        """Remove what was kept long enough; how many rows. Call again until it answers 0.

        Of one *task*, or of all *but* these; events, which tasks share, only with the jobs of all.
        A job with artifacts is left as it is until they are forgotten. Tracebacks go after the jobs, once no attempt
        refers to them and a day has passed since the last failure that used them.
        """

    async def artifacts_due(
        self, task: str | None, keep: Retention, limit: int, but: Collection[str] = ()
    ) -> list[Artifact]:
        """The artifacts of jobs that `purge` would take now, or whose results it would."""

    async def forget_artifacts(self, artifacts: Sequence[Artifact]) -> None:
        """Delete the records of *artifacts*, which were deleted."""

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Queued or processing → cancelled, else `Conflict`. `Changed` where the *precondition* does not admit the job's version;
        that is decided in the transaction of the move, here and below."""

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
        edit: Edit | None = None,
        priority: int | None = None,
        precondition: Precondition = UNCONDITIONAL,
        stuck: StuckAttempt | None = None,
    ) -> int:
        """Failed or cancelled → queued as a new generation; waiting or stuck → due now. Else `Conflict`. As a redrive (*kind*)
        only of a dead letter.

        Stuck is an attempt whose lease has run out and, where it is still the current one, that of *stuck*; it is taken from
        its worker in this move. *edit* changes what it is called with, by the same move. *forget* names the steps to run anew;
        without it they are kept, and with *edit* all forgotten. *priority* is the job's from this move on; None keeps the one it
        has. Answers the place in its line, counted from 1.
        """

    async def discard(
        self, job_id: JobId, by: str, reason: str, *, precondition: Precondition = UNCONDITIONAL
    ) -> None:
        """Delete the dead letter; the job stays failed. Raises `Conflict` when it has none."""

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        """Append an event that is no move, with *name* in its meta; whether it is new. However often and by however many it is
        sent, a job has one of this kind and name. `UnknownJob` when there is no such job."""

    # -- looking ----------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None: ...

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        """Where it stands in its lane, and how much of the bounds of these *scopes* is in use (`Cap.scope`). One look, so
        that all of it was true at once."""

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        """Newest first; *after* is the `next` of the page before. `UsageError` for one that was made up.

        No page looks at more jobs than it can in a few hundredths of a second: where few match, it may hold fewer than
        *limit* or none, and have a `next` all the same. Jobs are looked for at the time they were created by the clock
        of the process that enqueued them: a range does not find jobs whose clock was wrong by more than a day.

        The engine's own jobs match only where `domain.internal.hides_internal` says that the filter asks for them. The same
        holds for counts by a filter and for dead letters.

        Without *contents* arguments and results are not read: rows have None instead. They may be a megabyte each.
        """

    async def count(self, where: JobFilter) -> int:
        """How many match, however long that takes."""

    async def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, the engine's own too."""

    async def stats(self, most: int) -> JobStats:
        """What is there to be done, for those who ask every few seconds: no count goes on beyond *most*."""

    async def lanes(self) -> set[Lane]:
        """Every lane that was ever used. Costs the same however many jobs wait."""

    async def waiting_lanes(self) -> set[Lane]:
        """Every lane that has jobs waiting now. Costs the same however many lanes are empty, and however many jobs wait."""

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        """How many jobs wait in each of these lanes (None: in all), due now or later. Counts them one by one."""

    async def workers(self) -> list[WorkerRow]:
        """The workers that live, oldest first."""

    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        """Oldest first, from behind *after*. An event that commits later never appears before one already read."""

    async def newest_event(self) -> int:
        """Where to begin for whom only what happens from now on matters: the *after* behind which nothing is yet."""

    async def event_lag(self) -> timedelta:
        """How old the oldest event is that `events` keeps back, because an open transaction may yet put one before it."""

    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        """The attempts of a job, oldest first, each with its logs and with the traceback that its failure refers to; up to
        *limit* of those whose epoch is larger than *after*."""

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        """By id; *after* is the id of the last one before. A page that is not full is the last one. Without *contents*
        arguments are not read."""

    async def count_dead_letters(self, where: DeadLetterFilter) -> int: ...

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]: ...

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        """Results that came too late, by epoch; up to *limit* of those whose epoch is larger than *after*."""

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        """Of all its attempts, in their order: the result's and the handler's own, by name."""

    async def violations(self) -> list[str]:
        """The invariants of E3 that the schema cannot hold, checked; empty when all is well."""

    async def health(self) -> dict[str, Any]:
        """Facts for `doctor`: version, size, durability settings."""

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        """Return early when work may have arrived. A hint only: the claim is the truth (rule 5 of docs/explanation/reliability.md)."""

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        """Return early when the job may have ended. A hint only."""

    def heartbeat(self) -> HeartbeatConnection:
        """A way to extend a session from a thread of its own, whatever the event loop is busy with."""


class HeartbeatConnection(Protocol):
    def beat(self, session: Session) -> bool:
        """`Store.extend`, blocking."""

    def close(self) -> None: ...


@runtime_checkable
class EnqueuesDirectly(Protocol):
    """A store that can enqueue from any thread without an event loop."""

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]: ...


@runtime_checkable
class EnqueuesInTransaction(Protocol):
    """A store that can enqueue on a connection of the caller's, inside the caller's own transaction."""

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]: ...

    def enqueue_in_sync(self, connection: Any, jobs: Sequence[NewJob]) -> Sequence[Enqueued]: ...


@runtime_checkable
class ChecksWrites(Protocol):
    """A store that knows whether a write failed for lack of space."""

    async def check_writes(self) -> None:
        """Where a write has failed because of the disk, try one. Raises `StoreUnavailable` if that fails too."""


@runtime_checkable
class RegistersLanes(Protocol):
    """A store where the first job of a new lane may have to wait for somebody else's transaction."""

    async def register(self, lanes: Collection[Lane]) -> None:
        """Create these lanes ahead, as far as that can be done now: an enqueue creates what is missing."""
