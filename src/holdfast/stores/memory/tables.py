"""What the other stores have in tables: jobs, sessions, dedupe keys and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from holdfast.engine.ports import MoveNotice
from holdfast.errors import UnknownJob
from holdfast.jobs.job import (
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
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.verdict import Failure
from holdfast.resilience.fairness import Turns
from holdfast.stores.encoding import some


@dataclass(slots=True)
class OpenSession:
    """A session, which ends at *until* by the monotonic clock."""

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
    """One job. *live* is None unless it is processing."""

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
    deferred: bool = False  #: not ready: it is due later, or was held back when it became due
    turn: int | None = None  #: its pass in a fair lane, once it has one
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
    done: set[str] = field(default_factory=set)  #: the tokens of the manual calls that were carried out

    @property
    def place(self) -> tuple[int, bool, int, datetime, int]:
        """Return what the jobs of a lane are sorted by; in a fair lane jobs without a turn come last."""
        return -self.spec.priority, self.turn is None, self.turn or 0, self.ord, self.number

    def holds(self, lease: Lease) -> bool:
        """Return whether *lease* is the current one."""
        return self.live is not None and self.live.epoch == lease.epoch

    def current_attempt(
        self,
        ended_at: datetime | None,
        outcome: str | None,
        failure: Failure | None,
        cost: float | None = None,
    ) -> Attempt:
        """Return the record of the current attempt, which ended with *outcome*, or which still runs."""
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
            cost=cost,
        )


class Tables:
    """All state in dictionaries. A write that fails restores what `save` has copied."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[JobId, Job] = {}
        self.lanes: dict[Lane, None] = {}
        self.dedupe: dict[bytes, JobId] = {}
        self.sessions: dict[SessionId, OpenSession] = {}
        self.events: list[Event] = []
        self.notices: list[MoveNotice] = []  #: for the hooks
        self.numbers, self.epochs, self.session_ids = count(1), count(1), count(1)
        self.turns = Turns()
        self.weights: dict[str, float] = {}
        self.paused: Callable[[], Collection[str]] = tuple  #: returns the maintenance tasks that are paused
        self.passes: dict[tuple[Lane, int], dict[str, int]] = defaultdict(
            dict
        )  #: the last pass of each owner of a lane at a priority; "": of any owner
        self._event_ids = count(1)
        self._saved: tuple[dict[JobId, Job], dict[Lane, None], dict[bytes, JobId], list[Event]] | None = None

    def find(self, job_id: JobId) -> Job:
        """Return the job, or raise `UnknownJob`."""
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
        """Append the event of a move, and a notice for the hooks."""
        epoch = job.epoch if epoch is None else epoch
        self._append(kind, job.id, epoch, job.attempt if attempt is None else attempt, meta)

    def record_no_job(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        """Append an event of a lane, a dependency or a message, and a notice for the hooks."""
        self._append(kind, JobId(""), 0, 0, meta)

    def _append(self, kind: Kind, job_id: JobId, epoch: int, attempt: int, meta: Mapping[str, Any]) -> None:
        shown = some(meta)
        self.notices.append(MoveNotice(kind, job_id, epoch, attempt, shown))
        self.events.append(
            Event(
                id=self.next_event(),
                at=self.clock.now(),
                kind=kind.name,
                job_id=job_id,
                epoch=epoch,
                attempt=attempt,
                meta=shown,
            )
        )

    def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        """Append an event that is no move. Return False, and append nothing, if the job has one of this kind and name."""
        job = self.find(job_id)
        for event in self.events:
            if (event.job_id, event.kind, event.meta.get("name")) == (job_id, kind.name, name):
                return False
        self.record(kind, job, name=name, **meta)
        return True

    # -- undoing ----------------------------------------------------------------------------------------------------
    def save(self) -> None:
        """Copy all state, before moves that a hook may undo."""
        self._saved = deepcopy((self.jobs, self.lanes, self.dedupe, self.events))

    def forget_saved(self) -> None:
        self._saved = None

    def restore(self) -> None:
        if self._saved is not None:
            self.jobs, self.lanes, self.dedupe, self.events = self._saved
