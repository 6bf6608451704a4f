"""What the other stores keep in tables: jobs, sessions, dedupe keys, events; and the little that every verb needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from holdfast.domain.credit import CreditHold, Grant, HoldState, LedgerEntry
from holdfast.domain.fairness import Turns
from holdfast.domain.job import (
    Artifact,
    Attempt,
    DeadLetter,
    Event,
    JobId,
    JobSpec,
    Lane,
    LateResult,
    Lease,
    Session,
    SessionId,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.posting import Wallet
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Clock, MoveNotice
from holdfast.errors import UnknownJob
from holdfast.stores.encoding import some


@dataclass(slots=True)
class OpenSession:
    """A session, and how long it lives by the monotonic clock."""

    session: Session
    queues: tuple[str, ...] | None
    started_at: datetime
    until: float
    waiting: int = 0


@dataclass(slots=True)
class Live:
    """A lease, and what was true when it was taken."""

    epoch: int
    session: Session
    started_at: datetime
    run_until: float | None
    began: float  #: *started_at* by the monotonic clock
    percent: float | None = None
    message: str = ""


@dataclass(slots=True)
class Job:
    """All there is to know of one job. *live* is there while it is processing."""

    id: JobId
    number: int
    payload: str
    spec: JobSpec
    lane: Lane
    state: State
    run_at: datetime
    created_at: datetime
    queued_at: datetime
    updated_at: datetime
    deadline_at: datetime | None
    ord: datetime
    deferred: bool = False  #: not in line yet: due later, or kept out when it became due
    turn: int | None = None  #: its pass in a fair line, once it has been placed there
    generation: int = 1
    epoch: int = 0
    attempt: int = 0
    crashes: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_attempt_at: datetime | None = None
    expired_at: datetime | None = None
    error: Failure | None = None
    last_failure: dict[str, Any] | None = None
    retry_type: str = "AUTOMATIC"
    manual_retry_count: int = 0
    result: str | None = None
    live: Live | None = None
    steps: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    late: dict[int, LateResult] = field(default_factory=dict)
    logs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    dead: DeadLetter | None = None
    done: set[str] = field(default_factory=set)  #: the names of people's calls that were carried out

    @property
    def place(self) -> tuple[int, bool, int, datetime, int]:
        """Return its place in its line: lowest first; in a fair line jobs that are not placed yet come last."""
        return -self.spec.priority, self.turn is None, self.turn or 0, self.ord, self.number

    def holds(self, lease: Lease) -> bool:
        """Whether *lease* is the current one."""
        return self.live is not None and self.live.epoch == lease.epoch

    def current_attempt(
        self, ended_at: datetime | None, outcome: str | None, failure: Failure | None
    ) -> Attempt:
        """The attempt under way, as the record of attempts shows it."""
        assert self.live is not None
        return Attempt(
            job_id=self.id,
            epoch=self.live.epoch,
            generation=self.generation,
            attempt=self.attempt,
            worker=self.live.session.worker,
            started_at=self.live.started_at,
            ended_at=ended_at,
            outcome=outcome,
            failure=failure,
        )


@dataclass(slots=True)
class Ledger:
    """Credits: what the other stores keep in the tables `credit_…`."""

    prices: dict[str, int] = field(default_factory=dict)
    wallets: dict[str, Wallet] = field(default_factory=dict)
    created: dict[str, datetime] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    holds: dict[tuple[JobId, int], tuple[CreditHold, HoldState]] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)


class Tables:
    """All state in dictionaries. *told* is what the hooks have not heard of yet."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[JobId, Job] = {}
        self.lanes: dict[Lane, None] = {}
        self.dedupe: dict[bytes, JobId] = {}
        self.sessions: dict[SessionId, OpenSession] = {}
        self.events: list[Event] = []
        self.told: list[MoveNotice] = []
        self.numbers, self.epochs, self.session_ids = count(1), count(1), count(1)
        self.turns = Turns()
        self.weights: dict[str, float] = {}
        self.paused: Callable[[], Collection[str]] = tuple  #: the duties that a hold in force stops
        self.passes: dict[tuple[Lane, int], dict[str, int]] = defaultdict(
            dict
        )  #: of a line's owners; "": the last given
        self.ledger = Ledger()
        self._event_ids = count(1)
        self._saved: (
            tuple[dict[JobId, Job], dict[Lane, None], dict[bytes, JobId], list[Event], Ledger] | None
        ) = None

    def find(self, job_id: JobId) -> Job:
        """The job, or `UnknownJob`."""
        if job_id not in self.jobs:
            raise UnknownJob(job_id)
        return self.jobs[job_id]

    def next_event(self) -> int:
        return next(self._event_ids)

    def is_live(self, session: Session) -> bool:
        kept = self.sessions.get(session.id)
        return kept is not None and self.clock.monotonic() < kept.until

    def record(
        self, kind: Kind, job: Job, *, epoch: int | None = None, attempt: int | None = None, **meta: Any
    ) -> None:
        """Append the event of a move; the hooks will be told of it."""
        epoch = job.epoch if epoch is None else epoch
        attempt = job.attempt if attempt is None else attempt
        told = some(meta)
        self.told.append(MoveNotice(kind, job.id, epoch, attempt, told))
        self.events.append(
            Event(
                id=self.next_event(),
                at=self.clock.now(),
                kind=kind.name,
                job_id=job.id,
                epoch=epoch,
                attempt=attempt,
                meta=told,
            )
        )

    # -- undoing ----------------------------------------------------------------------------------------------------
    def save(self) -> None:
        """Remember how everything was, before moves that a hook may undo."""
        self._saved = deepcopy((self.jobs, self.lanes, self.dedupe, self.events, self.ledger))

    def forget_saved(self) -> None:
        self._saved = None

    def restore(self) -> None:
        if self._saved is not None:
            self.jobs, self.lanes, self.dedupe, self.events, self.ledger = self._saved
