"""The memory store with one job in it, and what every actor has in its head: small enough to be in every state it can be in.

A world can be copied, compared and moved by one step. Two worlds whose futures cannot differ have the same `key`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from holdfast.engine.engine import Engine
from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import JobId, JobRow, JobSpec, Lane, Lease, NewJob, Session
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Verdict
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.tables import Job, OpenSession
from holdfast.tasks.settings import Settings
from tests.simulation.ledger import Life, check_row, demand, step

T = TypeVar("T")
LANE = Lane("default", "email")
JOB = JobId("00000000-0000-7000-8000-000000000001")
#: A lease outlasts one tick and not two: so a worker that says in between that it lives keeps it.
TICK, LEASE = 40.0, timedelta(seconds=60)
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Scenario:
    """Who takes part, and how often each may do what would otherwise go on for ever."""

    workers: int = 2
    max_attempts: int = 2
    deadline: float | None = None
    delay: float = 30.0  #: of a retry
    reapers: int = 1
    clicks: int = 2  #: people who press Retry
    cancels: int = 1
    crashes: int = 1


class Mind(NamedTuple):
    """What one worker knows: its session, the lease it believes to hold, and what it has sent without an answer."""

    session: Session
    lease: Lease | None = None
    unsure: Verdict | None = None


class Minds(NamedTuple):
    workers: tuple[Mind, ...]
    lists: tuple[tuple[Reclaim, ...], ...]  #: what each reaper has read, and not acted on yet
    clicks: int
    cancels: int
    crashes: int


class Snapshot(NamedTuple):
    minds: Minds
    life: Life
    job: Job
    sessions: tuple[OpenSession, ...]
    seconds: float
    epoch: int


class StillClock:
    """Moves when the world is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return 1000.0 + self.seconds

    def boot_id(self) -> str:
        return "still"

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Numbers:
    """A counter that can be set back: `itertools.count` cannot."""

    def __init__(self) -> None:
        self.last = 0

    def __next__(self) -> int:
        self.last += 1
        return self.last


class _Fixed:
    def random(self) -> float:
        return 0.5


def at_once(verb: Coroutine[Any, Any, T]) -> T:
    """The memory store never waits."""
    try:
        verb.send(None)
    except StopIteration as answer:
        return cast(T, answer.value)
    raise AssertionError("the memory store waited")


class World:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.clock = scenario, StillClock()
        self.store = MemoryStore(self.clock)
        self.tables = self.store._tables
        self.epochs = Numbers()
        self.tables.epochs = cast(Any, self.epochs)
        self.engine = Engine(self.store, {}, Settings(), self.clock, _Fixed(), cast(Any, None))
        deadline = None if scenario.deadline is None else timedelta(seconds=scenario.deadline)
        spec = JobSpec(lane=LANE, max_attempts=scenario.max_attempts, deadline=deadline)
        at_once(self.store.enqueue([NewJob(JOB, "{}", spec)]))
        self.life = step(None, self.tables.events.pop())
        self.minds = Minds(
            tuple(Mind(self.open_session()) for _ in range(scenario.workers)),
            ((),) * scenario.reapers,
            scenario.clicks,
            scenario.cancels,
            scenario.crashes,
        )

    # -- copying ----------------------------------------------------------------------------------------------------
    def save(self) -> Snapshot:
        known = {mind.session.id for mind in self.minds.workers}
        if self.job.live is not None:
            known.add(self.job.live.session.id)
        sessions = tuple(_twin(self.tables.sessions[number]) for number in known)
        return Snapshot(
            self.minds, self.life, _copied(self.job), sessions, self.clock.seconds, self.epochs.last
        )

    def restore(self, saved: Snapshot) -> None:
        self.minds, self.life, self.clock.seconds, self.epochs.last = (
            saved.minds,
            saved.life,
            saved.seconds,
            saved.epoch,
        )
        self.tables.jobs = {JOB: _copied(saved.job)}
        self.tables.sessions = {one.session.id: _twin(one) for one in saved.sessions}
        self.tables.events = []

    # -- questions --------------------------------------------------------------------------------------------------
    @property
    def job(self) -> Job:
        return self.tables.jobs[JOB]

    def row(self) -> JobRow:
        row = at_once(self.store.queries.job(JOB))
        assert row is not None
        return row

    def left(self, session: Session) -> float:
        """How long a session lives on; 0 when it has ended."""
        kept = self.tables.sessions.get(session.id)
        return 0.0 if kept is None else max(0.0, kept.until - self.clock.monotonic())

    @property
    def passed(self) -> bool:
        """The deadline is over."""
        return self.job.deadline_at is not None and self.clock.now() > self.job.deadline_at

    @property
    def is_due(self) -> bool:
        return self.job.state is State.QUEUED and self.job.run_at <= self.clock.now()

    @property
    def is_lost(self) -> bool:
        """Its lease has run out."""
        return self.job.live is not None and self.left(self.job.live.session) == 0.0

    # -- parts of steps ---------------------------------------------------------------------------------------------
    def open_session(self) -> Session:
        return at_once(self.store.open_session("worker", LEASE))

    def set_mind(self, place: int, mind: Mind) -> None:
        workers = list(self.minds.workers)
        workers[place] = mind
        self.minds = self.minds._replace(workers=tuple(workers))

    def set_list(self, place: int, reclaims: tuple[Reclaim, ...]) -> None:
        lists = list(self.minds.lists)
        lists[place] = reclaims
        self.minds = self.minds._replace(lists=tuple(lists))

    def settle_accounts(self) -> list[str]:
        """Every promise, after a step; the kinds of events it has brought."""
        events, self.tables.events = self.tables.events, []
        for event in events:
            self.life = step(self.life, event)
        row = self.row()
        check_row(self.life, row)
        self._check_end(row)
        found = {lost.lease for lost in at_once(self.store.expired(10))}
        expected = {Lease(JOB, self.life.epoch)} if self.is_lost else set()
        demand(found == expected, f"leases that ran out: {expected}; found: {found} (E30)")
        return [event.kind for event in events]

    def _check_end(self, row: JobRow) -> None:
        """The result is of the attempt that completed; a failed job has its dead letter, and no other has."""
        if row.state is State.COMPLETE:
            demand(self.life.ended.get(row.epoch) == "complete", "a result without a completion (E5)")
            demand(row.result == row.epoch, f"the result of epoch {row.result}, not {row.epoch} (E4)")
        demand((self.job.dead is not None) == (row.state is State.FAILED), "its dead letter is wrong (E32)")
        records = {epoch: attempt.outcome for epoch, attempt in self.job.attempts.items()}
        demand(records == self.life.ended, f"attempts {records}, events {self.life.ended} (E8)")

    # -- what makes two worlds the same -----------------------------------------------------------------------------
    def key(self) -> tuple[Any, ...]:
        job, life, minds = self.job, self.life, self.minds
        now = self.clock.now()
        waits = max((job.run_at - now).total_seconds(), 0.0) if job.state is State.QUEUED else 0.0
        until = None if job.deadline_at is None else max((job.deadline_at - now).total_seconds(), -1.0)
        holder = job.live.session if job.live is not None else None
        known = {mind.session.id for mind in minds.workers}
        orphan = self.left(holder) if holder is not None and holder.id not in known else None
        workers = sorted(
            (
                self.left(mind.session),
                holder is not None and holder.id == mind.session.id,
                self._about(mind.lease),
                repr(mind.unsure and type(mind.unsure)),
            )
            for mind in minds.workers
        )
        lists = sorted(
            tuple((self._about(r.lease), repr(r.verdict), r.crashed) for r in one) for one in minds.lists
        )
        facts = (life.state, life.generation, life.attempt, job.crashes, job.deferred, waits, until, orphan)
        return facts, tuple(workers), tuple(lists), minds.clicks, minds.cancels, minds.crashes

    def _about(self, lease: Lease | None) -> str:
        """All that matters about an epoch from now on."""
        if lease is None:
            return ""
        if self.life.runs and lease.epoch == self.life.epoch:
            return "current"
        told = any(epoch == lease.epoch for _, epoch in self.life.noted)
        return f"{self.life.ended.get(lease.epoch)}{'+' * told}"


def _copied(job: Job) -> Job:
    made = _twin(job)
    made.live = None if job.live is None else _twin(job.live)
    made.attempts, made.refused, made.late = dict(job.attempts), set(job.refused), dict(job.late)
    return made


def _twin(one: T) -> T:
    """As `copy.copy` of a dataclass with slots, and much faster: everything here is copied at every step."""
    facts = _FACTS.get(type(one))
    if facts is None:
        facts = _FACTS[type(one)] = attrgetter(*(fact.name for fact in fields(cast(Any, one))))
    return type(one)(*facts(one))


_FACTS: dict[type, attrgetter[Any]] = {}
