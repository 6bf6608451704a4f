"""Workers, people and the clock play against a store; the model says what must come of it (E2–E6, E52).

Every lease ever handed out may be used at any time, with any verdict, and so may any list of expired leases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import count
from typing import Any, ClassVar, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from holdfast.engine.engine import Engine
from holdfast.engine.ports import Reclaim, Store
from holdfast.engine.tables.holds import end_pause
from holdfast.errors import Conflict, UnknownJob
from holdfast.jobs.job import (
    DeadLetterFilter,
    Event,
    Expired,
    JobFilter,
    JobId,
    JobSpec,
    Lane,
    Lease,
    NewJob,
    Session,
    Settlement,
)
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import FINISHED, Kind, State
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.tasks.settings import Settings
from tests.heartbeats import extend
from tests.stateful.model import Job, Model, Replayed, replay

T = TypeVar("T")
LANE = Lane("default", "email")
MANY = 10_000
SCOPES = (
    Scope(ScopeKind.QUEUE, LANE.queue),
    Scope(ScopeKind.TASK, LANE.task),
    Scope(ScopeKind.LANE, LANE.label),
)


class Chance:
    def random(self) -> float:
        return 0.99


class NumberedIds:
    """Job ids in order, in the form that every store takes."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def job_id(self) -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(self._numbers):012x}")

    def worker_name(self) -> str:
        return f"worker-{next(self._numbers)}"

    def secret(self) -> bytes:
        return next(self._numbers).to_bytes(32, "big")


class Bench:
    """An open store, a private event loop to drive it, and the way to move its clock.

    *patience* is for the events of a store that keeps them back while anybody on the server, such as its own collector of
    statistics, is in a transaction that may have earlier ones.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        advance: Callable[[float], None],
        close: Callable[[], None],
        patience: float = 0.0,
    ) -> None:
        self.store, self.clock, self.loop = store, clock, loop
        self.advance, self.close, self.patience = advance, close, patience

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(verb)


def span(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


delays = st.sampled_from([0, 0, 20])


class Wish(NamedTuple):
    """What somebody asks for; durations in seconds, 0 for none."""

    max_attempts: int
    delay: int
    deadline: int
    timeout: int
    key: str | None
    dedupe: bytes | None


wishes = st.builds(
    Wish,
    max_attempts=st.sampled_from([3, 2, 1]),
    delay=delays,
    deadline=st.sampled_from([0, 0, 10, 30]),
    timeout=st.sampled_from([0, 0, 20]),
    key=st.sampled_from([None, None, "k"]),
    dedupe=st.sampled_from([None, None, None, b"0123456789abcdef"]),
)
words: st.SearchStrategy[str] = st.sampled_from(["complete", "retry", "bury", "release", "snooze"])


class Machine(RuleBasedStateMachine):
    make_bench: ClassVar[Callable[[], Bench]]

    jobs: Bundle[JobId] = Bundle("jobs")
    sessions: Bundle[Session] = Bundle("sessions")
    leases: Bundle[Lease] = Bundle("leases")
    lists: Bundle[list[Expired]] = Bundle("lists")

    def __init__(self) -> None:
        super().__init__()
        self.bench = type(self).make_bench()
        self.store = self.bench.store
        self.model = Model()
        self.ids = NumberedIds()
        self.engine = Engine(self.store, {}, Settings(), self.bench.clock, Chance(), self.ids)
        self.numbers = count(1)
        self.events: dict[JobId, list[Event]] = {}
        self.last_event = 0

        self.sound = False  # the last step came to a good end: a story that broke off is not looked at again

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        self.sound = False
        return self.bench.run(verb)

    def teardown(self) -> None:
        try:
            for job in self.model.jobs.values() if self.sound else ():
                self._check_records(job)
        finally:
            self.bench.close()

    # -- somebody wants work done -----------------------------------------------------------------------------------
    @initialize(target=jobs, several=st.lists(wishes, min_size=1, max_size=3))
    def enqueue_first(self, several: list[Wish]) -> MultipleResults[JobId]:
        return multiple(*(self._enqueue(wish) for wish in several))

    @rule(target=jobs, several=st.lists(wishes, min_size=1, max_size=2))
    def enqueue(self, several: list[Wish]) -> MultipleResults[JobId]:
        return multiple(*(self._enqueue(wish) for wish in several))

    def _enqueue(self, wish: Wish) -> JobId:
        now = self.model.now
        spec = JobSpec(
            lane=LANE,
            max_attempts=wish.max_attempts,
            delay=span(wish.delay),
            deadline=span(wish.deadline) if wish.deadline else None,
            timeout=span(wish.timeout) if wish.timeout else None,
            key=wish.key,
            dedupe=wish.dedupe,
        )
        new = NewJob(self.ids.job_id(), "{}", spec)
        [answer] = self.run(self.store.enqueue([new]))
        twin = self.model.twin(wish.dedupe)
        if twin is not None:
            assert (answer.id, answer.duplicate) == (twin.id, True)
            return twin.id
        [again] = self.run(self.store.enqueue([new]))  # its answer was lost: sent again, stored once
        assert answer == again == (new.id, False)
        self.model.enqueue(
            Job(
                id=new.id,
                max_attempts=wish.max_attempts,
                run_at=now + wish.delay,
                sla=wish.deadline if wish.deadline else None,
                timeout=wish.timeout if wish.timeout else None,
                key=wish.key,
                dedupe=wish.dedupe,
            )
        )
        return new.id

    # -- workers ----------------------------------------------------------------------------------------------------
    def _open_session(self) -> Session:
        ttl = span(60)
        session = self.run(self.store.open_session(self.ids.worker_name(), ttl))
        self.model.sessions[session.id] = self.model.now + ttl.total_seconds()
        return session

    @initialize(target=sessions)
    def open_sessions(self) -> MultipleResults[Session]:
        return multiple(self._open_session(), self._open_session())

    @rule(session=sessions, word=st.sampled_from(["extend", "extend", "close"]))
    def beat(self, session: Session, word: str) -> None:
        if word == "close":
            self.run(self.store.close_session(session))
            self.model.sessions[session.id] = self.model.now
            return
        live = self.model.is_live(session.id)
        assert self.run(extend(self.store, session)) is live
        if live:
            self.model.sessions[session.id] = self.model.now + session.ttl.total_seconds()

    @rule(target=leases, session=st.none() | sessions, limit=st.integers(1, 3))
    def claim(self, session: Session | None, limit: int) -> MultipleResults[Lease]:
        """By any session ever opened, or by a new one."""
        return self._claim(session or self._open_session(), limit)

    @precondition(lambda self: any(self.model.claimable()))
    @rule(target=leases, limit=st.integers(1, 3), word=words, delay=delays)
    def claim_and_settle(self, limit: int, word: str, delay: int) -> MultipleResults[Lease]:
        """A worker as it should be."""
        claimed = self._claim(self._open_session(), limit)
        for lease in claimed.values:
            self._settle(lease, word, delay, twice=False)
        return claimed

    @precondition(lambda self: any(self.model.claimable()))
    @rule(target=leases, limit=st.integers(1, 3), replaced=st.booleans(), word=st.none() | words)
    def claim_and_vanish(self, limit: int, replaced: bool, word: str | None) -> MultipleResults[Lease]:
        """A worker that is not heard of for long; *replaced* by another; it may come back with its *word*."""
        lost = self._claim(self._open_session(), limit)
        self.advance(70)
        won: MultipleResults[Lease] = multiple()
        if replaced:
            self._reclaim(self._look())
            won = self._claim(self._open_session(), limit)
        for lease in lost.values if word else ():
            self._settle(lease, word or "", 0, twice=False)
        return multiple(*lost.values, *won.values)

    def _claim(self, session: Session, limit: int) -> MultipleResults[Lease]:
        """Claim as a worker does: a short answer may miss jobs that are due, and only an empty one says that there are none."""
        self.run(self.store.promote(MANY))
        leases: list[Lease] = []
        while len(leases) < limit and (
            claimed := self.run(self.store.claim(session, [LANE], limit - len(leases)))
        ):
            for one in claimed:
                self.model.claim(session.id, one)
                leases.append(one.lease)
        assert len(leases) <= limit
        if self.model.is_live(session.id) and len(leases) < limit:
            assert [job.id for job in self.model.claimable()] == [], "due, and not claimed"
        return multiple(*leases)

    def _verdict(self, lease: Lease, word: str, delay: int) -> Verdict:
        """What a worker would say: never a retry of the last attempt, the policy sees to that."""
        job = self.model.jobs.get(lease.job_id)
        if word == "retry" and job is not None and job.holder == lease and job.attempt >= job.max_attempts:
            word = "bury"
        failure = Failure("BOOM", "BOOM happened", fingerprint="cafe", detail="RuntimeError: boom")
        match word:
            case "complete":
                return Complete(str(next(self.numbers)))
            case "retry":
                return RetryAfter(span(delay), failure)
            case "bury":
                return Bury(failure)
        return Release(span(delay), snoozed=word == "snooze")

    @rule(lease=leases, word=words, delay=delays, twice=st.booleans())
    def settle_with_any(self, lease: Lease, word: str, delay: int, twice: bool) -> None:
        """With any lease ever handed out. *twice*: the answer was lost and the same is sent again."""
        self._settle(lease, word, delay, twice=twice)

    def _settle(self, lease: Lease, word: str, delay: int, *, twice: bool) -> None:
        verdict = self._verdict(lease, word, delay)
        for _ in range(1 + twice):
            [answer] = self.run(self.store.settle([Settlement(lease, verdict)]))
            assert answer is self.model.settle(lease, verdict)

    @precondition(lambda self: any(job.holder for job in self.model.jobs.values()))
    @rule(pick=st.integers(0, 7), word=words, delay=delays)
    def finish(self, pick: int, word: str, delay: int) -> None:
        """The holder of a lease that nobody took away says how it went."""
        self._settle(self._held(pick), word, delay, twice=False)

    @rule(several=st.lists(st.tuples(leases, words, delays), min_size=2, max_size=4))
    def settle_many(self, several: list[tuple[Lease, str, int]]) -> None:
        """In one call, for different jobs."""
        chosen = {lease.job_id: Settlement(lease, self._verdict(lease, w, d)) for lease, w, d in several}
        answers = self.run(self.store.settle(list(chosen.values())))
        assert answers == [self.model.settle(s.lease, s.verdict) for s in chosen.values()]

    # -- holds ------------------------------------------------------------------------------------------------------
    @rule(
        target=leases,
        scope=st.sampled_from(SCOPES),
        cause=st.sampled_from(Cause),
        again=st.none() | st.sampled_from([10, 40]),
        seconds=st.sampled_from([10, 30]),
    )
    def hold_a_while(
        self, scope: Scope, cause: Cause, again: int | None, seconds: int
    ) -> MultipleResults[Lease]:
        """For 20 seconds, perhaps changed *again*; somebody claims before it is over, or after."""
        for length in (20, again):
            if length is not None:
                self.run(self.store.lanes.hold(scope, cause, span=span(length), reason="", by="test"))
                self.model.hold(str(scope), str(cause), length)
        self.advance(seconds)
        return self._claim(self._open_session(), 1)

    @rule(target=leases, scope=st.sampled_from(SCOPES), resumed=st.sampled_from(SCOPES))
    def pause_and_resume(self, scope: Scope, resumed: Scope) -> MultipleResults[Lease]:
        """Somebody else may resume something else; in the end the pause is lifted."""
        self.run(self.store.lanes.hold(scope, Cause.PAUSE, span=None, reason="", by="test"))
        self.model.hold(str(scope), str(Cause.PAUSE), None)
        early = self._claim(self._open_session(), 1)
        for one in (resumed, scope):
            ended = self.run(end_pause(self.store, one, by="test"))
            assert ended is self.model.resume(str(one), str(Cause.PAUSE))
        return early

    # -- the clock, and the duties ----------------------------------------------------------------------------------
    @rule(target=lists, seconds=st.sampled_from([10, 10, 30, 70]))
    def advance(self, seconds: int) -> MultipleResults[list[Expired]]:
        """Time passes; somebody looks which leases have run out, and may act on it later."""
        self.bench.advance(seconds)
        self.model.now += seconds
        found = self._look()
        return multiple(found) if found else multiple()

    def _look(self) -> list[Expired]:
        found = self.run(self.store.expired(MANY))
        assert {lost.lease: lost.overran for lost in found} == self.model.expected_expired()
        for lost in found:
            job = self.model.jobs[lost.lease.job_id]
            assert (lost.attempt, lost.max_attempts, lost.crashes) == (
                job.attempt,
                job.max_attempts,
                job.crashes,
            )
        return found

    @precondition(lambda self: self.model.expected_expired())
    @rule()
    def reclaim(self) -> None:
        self._reclaim(self._look())

    @rule(lost=lists)
    def reclaim_late(self, lost: list[Expired]) -> None:
        """With a list that was read some time ago."""
        self._reclaim(lost)

    def _held(self, pick: int) -> Lease:
        held = [job.holder for job in self.model.jobs.values() if job.holder is not None]
        return held[pick % len(held)]

    @precondition(lambda self: any(job.holder for job in self.model.jobs.values()))
    @rule(pick=st.integers(0, 7), crashed=st.booleans())
    def reclaim_by_mistake(self, pick: int, crashed: bool) -> None:
        """By a duty that believes something wrong about a lease: most often it lives."""
        lease = self._held(pick)
        job = self.model.jobs[lease.job_id]
        failure = Failure.of("WORKER_LOST" if crashed else "EXECUTION_TIMEOUT")
        spent = job.attempt >= job.max_attempts
        self._reclaim_all(
            [Reclaim(lease, Bury(failure) if spent else RetryAfter(timedelta(), failure), crashed)]
        )

    def _reclaim(self, lost: list[Expired]) -> None:
        self._reclaim_all([self.engine.recovery._judge_expired(one) for one in lost])

    def _reclaim_all(self, reclaims: list[Reclaim]) -> None:
        # Known: where the attempt overran and then its worker was lost too, the stores differ in whether a reclaim
        # that says "overran" still holds. Either is safe; it is left out.
        told = [r for r in reclaims if r.crashed or not self.model.is_lost(r.lease)]
        if told:
            assert self.run(self.store.reclaim(told)) == self.model.reclaim(told)

    @precondition(lambda self: any(self.model.passed(job) for job in self.model.jobs.values()))
    @rule()
    def time_out(self) -> None:
        assert set(self.run(self.store.time_out(MANY))) == self.model.time_out()

    @precondition(lambda self: any(job.finished_at is not None for job in self.model.jobs.values()))
    @rule(results=st.sampled_from([None, 0, 60]), jobs=st.sampled_from([None, None, 60]))
    def purge(self, results: int | None, jobs: int | None) -> None:
        keep = Retention(
            results=None if results is None else span(results),
            jobs=None if jobs is None else span(jobs),
        )
        self.run(self.store.purge(None, keep, MANY))
        self.model.purge(results, jobs)

    # -- people -----------------------------------------------------------------------------------------------------
    def _ask(self, verb: Coroutine[Any, Any, object], job_id: JobId, *, allowed: bool) -> bool:
        """Whether the store did it; a refusal must be the right one."""
        try:
            self.run(verb)
        except UnknownJob:
            assert job_id not in self.model.jobs
            return False
        except Conflict:
            assert job_id in self.model.jobs
            assert not allowed
            return False
        assert allowed
        return True

    @rule(job_id=jobs, word=st.sampled_from(["retry", "retry", "cancel", "discard"]))
    def person(self, job_id: JobId, word: str) -> None:
        job, model, store = self.model.jobs.get(job_id), self.model, self.store
        if word == "retry" and job is not None and model.is_spent(job):
            return
        match word:
            case "cancel":
                allowed = job is not None and job.state not in FINISHED
                if self._ask(store.cancel(job_id, "ann", "why not"), job_id, allowed=allowed) and job:
                    model.cancel(job)
            case "retry":
                allowed = job is not None and model.may_retry(job)
                verb = store.retry(job_id, "ann", kind=Kind.manual_retry)
                stuck = job is not None and job.holder is not None
                if self._ask(verb, job_id, allowed=allowed) and job:
                    model.retry(job)
                    if stuck:
                        self._adopt(job)
            case "discard":
                allowed = job is not None and job.dead
                if self._ask(store.discard(job_id, "ann", "known"), job_id, allowed=allowed) and job:
                    job.dead = False
                    job.kinds.append("discarded")

    def _adopt(self, job: Job) -> None:
        """The stores differ in whether a person's retry of a stuck job counts as a crash: take their word."""
        row = self.run(self.store.queries.job(job.id))
        assert row is not None
        assert row.crashes <= job.crashes + 1
        job.crashes, job.failed_once = row.crashes, row.last_failure is not None

    @precondition(lambda self: self.model.expected_expired())
    @rule(pick=st.integers(0, 7))
    def retry_stuck(self, pick: int) -> None:
        stuck = [lease.job_id for lease in self.model.expected_expired()]
        self.person(stuck[pick % len(stuck)], "retry")

    @precondition(lambda self: any(job.holder for job in self.model.jobs.values()))
    @rule(pick=st.integers(0, 7), word=st.none() | words)
    def cancel_running(self, pick: int, word: str | None) -> None:
        """And its worker may still have its *word*, too late."""
        lease = self._held(pick)
        self.person(lease.job_id, "cancel")
        if word is not None:
            self._settle(lease, word, 0, twice=True)

    # -- what must hold after every step ----------------------------------------------------------------------------
    @invariant()
    def all_is_well(self) -> None:
        self._check_rows()
        self._check_events()
        assert self.run(self.store.queries.violations()) == []
        self.sound = True

    def _check_rows(self) -> None:
        page = self.run(self.store.queries.jobs(JobFilter(), after=None, limit=MANY))
        rows = {row.id: row for row in page.rows}
        assert set(rows) == set(self.model.jobs)
        for job in self.model.jobs.values():
            row = rows[job.id]
            assert row.state is job.state
            assert (row.generation, row.attempt, row.crashes) == (job.generation, job.attempt, job.crashes)
            assert row.attempt <= row.max_attempts
            assert row.epoch == job.epoch
            assert (row.result, row.error_code) == (job.result, job.error_code)
            assert (row.expired_at is not None) is job.expired
            assert (row.leased_by is not None) is (job.holder is not None)
            assert (row.last_failure is not None) is job.failed_once
            assert row.manual_retry_count == job.manual_retries
        assert self.run(self.store.queries.counts()) == self.model.counts()

    def _check_events(self) -> None:
        until = time.monotonic() + self.bench.patience
        self._read_events()
        while self._misses_events() and time.monotonic() < until:
            time.sleep(0.005)
            self._read_events()
        for job in self.model.jobs.values():
            told = self.events[job.id]
            assert [event.kind for event in told] == job.kinds
            again = replay((event.kind, event.epoch, event.attempt) for event in told)
            assert again == Replayed(job.state, job.generation, job.attempt, job.epoch)

    def _read_events(self) -> None:
        for event in self.run(self.store.queries.events(after=self.last_event, limit=MANY)):
            self.events.setdefault(event.job_id, []).append(event)
            self.last_event = event.id

    def _misses_events(self) -> bool:
        return any(len(self.events.get(job.id, ())) < len(job.kinds) for job in self.model.jobs.values())

    def _check_records(self, job: Job) -> None:
        """At the end of the story: attempts, late results and dead letters, one for one."""
        run = self.run
        attempts = run(self.store.queries.attempts(job.id))
        running = {job.epoch: None} if job.holder else {}
        assert {a.epoch: a.outcome for a in attempts} == {**job.ended, **running}
        assert len(attempts) == len(job.ended) + len(running)
        assert {late.epoch for late in run(self.store.queries.late_results(job.id))} == job.late
        letters = run(
            self.store.queries.dead_letters(DeadLetterFilter(ids=(job.id,)), after=None, limit=MANY)
        )
        assert [letter.code for letter in letters] == ([job.error_code] if job.dead else [])
        if job.state is State.PROCESSING and job.session is not None:
            session = Session(id=job.session, worker="", ttl=timedelta(minutes=1))
            assert run(self.store.held(session)) == self.model.held(job.session)
