"""A tiny model of the engine: who may finish what, and what the record of a job must say.

It knows nothing of stores. Times are seconds since the example began; a lease is (job, epoch) as the store gave it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.jobs.job import Claimed, JobId, Lease, SessionId
from holdfast.jobs.moves import FINISHED, MOVES, State
from holdfast.jobs.verdict import Bury, Complete, Release, RetryAfter, Verdict

#: How long a live worker may be late in stopping an attempt that overran.
MARGIN = 5.0


@dataclass
class Job:
    """One job as it must be. *ended* says how each lease that is over came to its end."""

    id: JobId
    max_attempts: int
    run_at: float
    sla: float | None
    timeout: float | None
    key: str | None
    dedupe: bytes | None
    deadline_at: float | None = None
    state: State = State.QUEUED
    generation: int = 1
    attempt: int = 0
    crashes: int = 0
    epoch: int = 0
    holder: Lease | None = None
    session: SessionId | None = None
    run_until: float | None = None
    ended: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    kinds: list[str] = field(default_factory=lambda: ["queued"])
    result: int | None = None
    error_code: str | None = None
    failed_once: bool = False
    finished_at: float | None = None
    manual_retries: int = 0
    dead: bool = False
    expired: bool = False


class Model:
    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: dict[JobId, Job] = {}
        self.sessions: dict[SessionId, float] = {}
        self.keys: dict[bytes, JobId] = {}
        self.purged: set[JobId] = set()
        self.holds: dict[tuple[str, str], float] = {}  #: (scope, cause) → until when

    # -- questions --------------------------------------------------------------------------------------------------
    def is_live(self, session: SessionId | None) -> bool:
        return session is not None and self.now < self.sessions[session]

    def ran_out(self, job: Job) -> tuple[bool, bool]:
        """(its worker was lost, its worker lives but let it overrun)"""
        if job.holder is None:
            return False, False
        lost = not self.is_live(job.session)
        return lost, not lost and job.run_until is not None and self.now > job.run_until + MARGIN

    def is_lost(self, lease: Lease) -> bool:
        job = self.jobs.get(lease.job_id)
        return job is not None and job.holder == lease and not self.is_live(job.session)

    def passed(self, job: Job) -> bool:
        return job.deadline_at is not None and self.now > job.deadline_at

    def twin(self, dedupe: bytes | None) -> Job | None:
        job = self.jobs.get(self.keys[dedupe]) if dedupe in self.keys else None
        if job is None or job.state in (State.FAILED, State.CANCELLED) or job.expired:
            return None
        return job

    def busy_keys(self) -> set[str]:
        return {job.key for job in self.jobs.values() if job.holder is not None and job.key is not None}

    def is_held(self) -> bool:
        """All jobs are in one lane: one hold of its queue, its task or itself is enough."""
        return any(self.now < until for until in self.holds.values())

    def claimable(self) -> Iterable[Job]:
        if self.is_held():
            return
        busy = self.busy_keys()
        for job in self.jobs.values():
            if job.state is State.QUEUED and job.run_at <= self.now and job.key not in busy:
                yield job

    def held(self, session: SessionId) -> set[Lease]:
        return {job.holder for job in self.jobs.values() if job.holder is not None and job.session == session}

    def expected_expired(self) -> dict[Lease, bool]:
        """Lease → whether it overran, of all that have run out."""
        found = {}
        for job in self.jobs.values():
            lost, overran = self.ran_out(job)
            if job.holder is not None and (lost or overran):
                found[job.holder] = overran
        return found

    def counts(self) -> dict[str, int]:
        return {str(state): sum(job.state is state for job in self.jobs.values()) for state in State}

    # -- moves ------------------------------------------------------------------------------------------------------
    def enqueue(self, job: Job) -> None:
        self.jobs[job.id] = job
        job.deadline_at = None if job.sla is None else self.now + job.sla
        if job.dedupe is not None:
            self.keys[job.dedupe] = job.id

    def hold(self, scope: str, cause: str, span: float | None) -> None:
        until = inf if span is None else self.now + span
        if cause == "retry_after":  # can only make it longer
            until = max(until, self.holds.get((scope, cause), 0.0))
        self.holds[scope, cause] = until

    def resume(self, scope: str, cause: str) -> bool:
        return self.now < self.holds.pop((scope, cause), 0.0)

    def claim(self, session: SessionId, claimed: Claimed) -> None:
        """Check one claim that the store made, and follow it."""
        job = self.jobs[claimed.lease.job_id]
        assert self.is_live(session), "a dead session was given work"
        assert not self.is_held(), "a held lane gave work out"
        assert job.state is State.QUEUED, f"a {job.state} job was claimed"
        assert job.run_at <= self.now, "a job was claimed before its time"
        assert job.key is None or job.key not in self.busy_keys(), "two jobs of one key run at once"
        assert claimed.lease.epoch > job.epoch, "the epoch went back"
        assert (claimed.attempt, claimed.generation) == (job.attempt + 1, job.generation)
        assert claimed.attempt <= job.max_attempts, "more attempts than allowed"
        assert claimed.crashes == job.crashes
        job.state, job.attempt, job.epoch = State.PROCESSING, claimed.attempt, claimed.lease.epoch
        job.holder, job.session = claimed.lease, session
        job.run_until = None if job.timeout is None else self.now + job.timeout
        job.kinds.append("processing")

    def settle(self, lease: Lease, verdict: Verdict) -> SettlementStatus:
        """What must be answered, and what must become of the job."""
        job = self.jobs.get(lease.job_id)
        if job is None:
            return SettlementStatus.STALE
        if lease != job.holder:
            return self._refuse(job, lease)
        if self.passed(job):
            self._time_out(job)
            return self._refuse(job, lease)
        match verdict:
            case Complete(result):
                self._end(job, "complete")
                self._finish(job, State.COMPLETE, "complete")
                job.result = None if result is None else int(result)
                job.crashes, job.failed_once = 0, False
            case RetryAfter(delay):
                self._end(job, "retry")
                job.crashes, job.failed_once = 0, True
                self._queue(job, delay.total_seconds(), "retry")
            case Bury(failure):
                self._end(job, "failed")
                job.crashes, job.failed_once = 0, True
                self._bury(job, failure.code, "failed")
            case Release(delay, _, snoozed):
                word = "snoozed" if snoozed else "released"
                self._end(job, word)
                job.attempt -= 1
                self._queue(job, delay.total_seconds(), word)
        return SettlementStatus.APPLIED

    def _refuse(self, job: Job, lease: Lease) -> SettlementStatus:
        match job.ended[lease.epoch]:
            case "timed_out" | "cancelled":
                if lease.epoch not in job.late:
                    job.late.add(lease.epoch)
                    job.kinds.append("late_result")
                return SettlementStatus.LATE
            case "reclaimed":
                if lease.epoch not in job.refused:
                    job.refused.add(lease.epoch)
                    job.kinds.append("stale_write")
                return SettlementStatus.STALE
        return SettlementStatus.REPEATED

    def reclaim(self, reclaims: Iterable[Reclaim]) -> int:
        done = 0
        for lease, verdict, crashed, *_ in reclaims:
            job = self.jobs.get(lease.job_id)
            if job is None or job.holder != lease:
                continue
            lost, overran = self.ran_out(job)
            if not (lost if crashed else overran):
                continue
            done += 1
            self._end(job, "reclaimed")
            job.crashes, job.failed_once = job.crashes + 1 if crashed else 0, True
            if isinstance(verdict, Bury):
                self._bury(job, verdict.failure.code, "failed")
            else:
                assert isinstance(verdict, RetryAfter)
                self._queue(job, verdict.delay.total_seconds(), "reclaimed")
        return done

    def time_out(self) -> set[JobId]:
        late = [job for job in self.jobs.values() if job.state not in FINISHED and self.passed(job)]
        for job in late:
            self._time_out(job)
        return {job.id for job in late}

    def cancel(self, job: Job) -> None:
        if job.holder is not None:
            self._end(job, "cancelled")
        self._finish(job, State.CANCELLED, "cancelled")

    def may_retry(self, job: Job) -> bool:
        if job.state in (State.FAILED, State.CANCELLED):
            return self.twin(job.dedupe) in (None, job)
        return any(self.ran_out(job)) or (job.state is State.QUEUED and job.run_at > self.now)

    def is_spent(self, job: Job) -> bool:
        """Its worker was lost in the last attempt it had."""
        return job.holder is not None and job.attempt >= job.max_attempts

    def retry(self, job: Job) -> None:
        if job.state in (State.FAILED, State.CANCELLED):
            job.generation, job.attempt, job.crashes = job.generation + 1, 0, 0
            job.error_code, job.finished_at, job.dead = None, None, False
            job.deadline_at = None if job.sla is None else self.now + job.sla
            if job.dedupe is not None:
                self.keys[job.dedupe] = job.id
        elif job.holder is not None:
            self._end(job, "reclaimed")
            job.kinds.append("reclaimed")
        job.manual_retries += 1
        self._queue(job, 0, "manual_retry")

    def purge(self, results: float | None, jobs: float | None) -> None:
        for job in list(self.jobs.values()):
            if job.finished_at is None:
                continue
            if (
                results is not None
                and job.state is State.COMPLETE
                and not job.expired
                and job.finished_at <= self.now - results
            ):
                job.expired, job.result = True, None
                job.kinds.append("expired")
            if jobs is not None and job.finished_at <= self.now - jobs and not job.dead:
                del self.jobs[job.id]
                self.purged.add(job.id)

    # -- parts of moves ---------------------------------------------------------------------------------------------
    def _end(self, job: Job, outcome: str) -> None:
        job.ended[job.epoch] = outcome
        job.holder = job.session = job.run_until = None

    def _queue(self, job: Job, delay: float, kind: str) -> None:
        job.state, job.run_at = State.QUEUED, self.now + delay
        job.kinds.append(kind)

    def _finish(self, job: Job, state: State, kind: str) -> None:
        job.state, job.finished_at = state, self.now
        job.kinds.append(kind)

    def _bury(self, job: Job, code: str, kind: str) -> None:
        job.error_code, job.dead = code, True
        self._finish(job, State.FAILED, kind)

    def _time_out(self, job: Job) -> None:
        if job.holder is not None:
            self._end(job, "timed_out")
        self._bury(job, "TIMEOUT", "timed_out")


#: Which verb an event tells of, and the state it leads to. What is not here changes no state.
TOLD: dict[str, tuple[str, State]] = {
    "queued": ("enqueue", State.QUEUED),
    "processing": ("claim", State.PROCESSING),
    "complete": ("complete", State.COMPLETE),
    "retry": ("fail", State.QUEUED),
    "failed": ("fail", State.FAILED),
    "released": ("release", State.QUEUED),
    "snoozed": ("release", State.QUEUED),
    "reclaimed": ("reclaim", State.QUEUED),
    "timed_out": ("time_out", State.FAILED),
    "cancelled": ("cancel", State.CANCELLED),
    "manual_retry": ("retry", State.QUEUED),
    "redriven": ("retry", State.QUEUED),
    "rejected": ("reject", State.FAILED),
}


@dataclass
class Replayed:
    state: State
    generation: int
    attempt: int
    epoch: int


def replay(events: Iterable[tuple[str, int, int]]) -> Replayed:
    """Rebuild a job from its (kind, epoch, attempt) events; every step must be a legal move (E2, E60)."""
    state: State | None = None
    generation, attempt, epoch = 1, 0, 0
    for kind, event_epoch, event_attempt in events:
        if kind not in TOLD:
            continue
        verb, after = TOLD[kind]
        starts, ends = MOVES[verb]
        assert state in starts if starts else state is None, f"{kind} of a job that is {state}"
        assert after in ends
        if kind == "processing":
            assert event_epoch > epoch, "the epoch went back"
            attempt, epoch = event_attempt, event_epoch
        elif kind in ("released", "snoozed"):
            attempt -= 1
        elif verb == "retry" and state in FINISHED:
            generation, attempt = generation + 1, 0
        # One recorded end for each generation: a second would have to start from a finished state.
        state = after
    assert state is not None, "a job without a beginning"
    return Replayed(state, generation, attempt, epoch)
