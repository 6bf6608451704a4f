"""The store for tests: every rule of the contract in plain Python, and nothing kept after the process.

It is also the easiest place to read what the verbs mean; the SQL of the other stores says the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from holdfast.domain.job import (
    Attempt,
    Claimed,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Enqueued,
    Event,
    Expired,
    JobFilter,
    JobId,
    JobRow,
    JobSpec,
    Lane,
    LateResult,
    Lease,
    NewJob,
    Session,
    SessionId,
    Settlement,
)
from holdfast.domain.moves import FINISHED, Kind, State
from holdfast.domain.rules import broken_rules, outcome_of, retry_refusal
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.ports import Answer, Clock, Heart, Hook, Moved, Page, Reclaim, Retention
from holdfast.errors import Conflict, LeaseLost, UnknownJob, UsageError

#: How long a live worker may be late in stopping an attempt that overran, before the attempt is taken from it.
OVERRUN_MARGIN = timedelta(seconds=5)


@dataclass(slots=True)
class _Live:
    """A lease, and what was true when it was taken."""

    epoch: int
    session: Session
    started_at: datetime
    run_until: float | None
    percent: float | None = None
    message: str = ""


@dataclass(slots=True)
class _Job:
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
    retry_type: str | None = None
    manual_retry_count: int = 0
    result: str | None = None
    live: _Live | None = None
    steps: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    late: dict[int, LateResult] = field(default_factory=dict)
    dead: DeadLetter | None = None


class _NoSql:
    """What a hook is given here: there is no SQL to run, but the moves are told."""

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        raise UsageError("the memory store runs no SQL; test this hook on SQLite")


class MemoryStore:
    """All state in dictionaries. Every method runs to its end without awaiting, so each is one transaction."""

    def __init__(self, clock: Clock) -> None:
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self._clock = clock
        self._jobs: dict[JobId, _Job] = {}
        self._dedupe: dict[bytes, JobId] = {}
        self._sessions: dict[SessionId, tuple[Session, float]] = {}
        self._events: list[Event] = []
        self._numbers, self._epochs, self._event_ids, self._session_ids = (
            count(1),
            count(1),
            count(1),
            count(1),
        )
        self._lanes: dict[Lane, None] = {}
        self._bell = asyncio.Event()
        self._told: list[Moved] = []
        self._saved: tuple[dict[JobId, _Job], dict[bytes, JobId], list[Event]] | None = None

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        return []

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._save()
        answers = [self._enqueue_one(job) for job in jobs]
        await self._committed()
        return answers

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [self._enqueue_one(job) for job in jobs]

    def _enqueue_one(self, new: NewJob) -> Enqueued:
        if new.id in self._jobs:
            return Enqueued(new.id)
        twin = self._twin(new.spec.dedupe)
        if twin is not None:
            return Enqueued(twin.id, duplicate=True)
        job = self._add(new, State.QUEUED)
        self._event(Kind.queued, job)
        return Enqueued(job.id)

    def _add(self, new: NewJob, state: State) -> _Job:
        now, spec = self._clock.now(), new.spec
        run_at = spec.run_at or now + (spec.delay or timedelta())
        deadline_at = spec.deadline_at or (now + spec.deadline if spec.deadline is not None else None)
        job = _Job(
            id=new.id,
            number=next(self._numbers),
            payload=new.payload,
            spec=spec,
            lane=spec.lane,
            state=state,
            run_at=run_at,
            created_at=now,
            queued_at=now,
            updated_at=now,
            deadline_at=deadline_at,
            ord=max(now, run_at),
        )
        self._jobs[job.id] = job
        self._lanes[spec.lane] = None
        if spec.dedupe and state is State.QUEUED:
            self._dedupe[spec.dedupe] = job.id
        return job

    def _twin(self, digest: bytes | None) -> _Job | None:
        """The job that stands in for a new one with the same dedupe key: unfinished, or complete and not expired."""
        job = self._jobs.get(self._dedupe.get(digest, JobId(""))) if digest else None
        if job is None or job.state in (State.FAILED, State.CANCELLED) or job.expired_at is not None:
            return None
        if job.state is State.COMPLETE and job.spec.dedupe_for is not None:
            assert job.finished_at is not None
            return job if self._clock.now() < job.finished_at + job.spec.dedupe_for else None
        return job

    async def reject(self, job: NewJob, failure: Failure) -> None:
        if job.id not in self._jobs:
            record = self._add(job, State.FAILED)
            record.finished_at, record.error = record.created_at, failure
            self._event(Kind.rejected, record, error_code=failure.code)
            await self._committed()

    async def promote(self, limit: int) -> timedelta | None:
        """Nothing to move here: a job is in line as soon as it is due."""
        now = self._clock.now()
        waiting = [
            job.run_at - now for job in self._jobs.values() if job.state is State.QUEUED and job.run_at > now
        ]
        return min(waiting, default=None)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(self, worker: str, ttl: timedelta) -> Session:
        session = Session(id=SessionId(next(self._session_ids)), worker=worker, ttl=ttl)
        self._sessions[session.id] = session, self._clock.monotonic() + ttl.total_seconds()
        return session

    async def extend(self, session: Session) -> bool:
        if not self._is_live(session):
            return False
        self._sessions[session.id] = session, self._clock.monotonic() + session.ttl.total_seconds()
        return True

    async def close_session(self, session: Session) -> None:
        self._sessions.pop(session.id, None)

    async def held(self, session: Session) -> set[Lease]:
        return {
            Lease(j.id, j.epoch) for j in self._jobs.values() if j.live and j.live.session.id == session.id
        }

    def _is_live(self, session: Session) -> bool:
        return self._clock.monotonic() < self._sessions.get(session.id, (session, 0.0))[1]

    async def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        if not self._is_live(session):
            return []
        now, wanted = self._clock.now(), set(lanes)
        due = [
            j for j in self._jobs.values() if j.state is State.QUEUED and j.run_at <= now and j.lane in wanted
        ]
        due.sort(key=lambda job: (-job.spec.priority, job.ord, job.number))
        busy = {job.spec.key for job in self._jobs.values() if job.live}
        claimed: list[Claimed] = []
        for job in due:
            if len(claimed) == limit:
                break
            if job.spec.key is not None and job.spec.key in busy:
                continue
            busy.add(job.spec.key)
            claimed.append(self._claim_one(job, session, now))
        await self._committed()
        return claimed

    def _claim_one(self, job: _Job, session: Session, now: datetime) -> Claimed:
        timeout = job.spec.timeout
        job.state, job.epoch, job.attempt = State.PROCESSING, next(self._epochs), job.attempt + 1
        job.started_at, job.last_attempt_at, job.updated_at = job.started_at or now, now, now
        until = self._clock.monotonic() + timeout.total_seconds() if timeout is not None else None
        job.live = _Live(job.epoch, session, now, until)
        self._event(Kind.processing, job, worker=session.worker)
        return Claimed(
            lease=Lease(job.id, job.epoch),
            lane=job.lane,
            payload=job.payload,
            attempt=job.attempt,
            max_attempts=job.spec.max_attempts,
            crashes=job.crashes,
            generation=job.generation,
            owner=job.spec.owner,
            key=job.spec.key,
            timeout=timeout,
            until_deadline=job.deadline_at - now if job.deadline_at else None,
            waited=now - job.queued_at,
            start_within=job.spec.start_within,
            version=job.spec.version,
            trace=job.spec.trace,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        self._save()
        answers = [self._settle_one(s.lease, s.verdict, s.duration) for s in settlements]
        await self._committed()
        return answers

    def _settle_one(self, lease: Lease, verdict: Verdict, duration: timedelta = timedelta()) -> Answer:
        job = self._jobs.get(lease.job_id)
        if job is None:
            return Answer.STALE
        if job.live is None or job.live.epoch != lease.epoch:
            return self._refuse(job, lease, verdict)
        if job.deadline_at is not None and self._clock.now() > job.deadline_at:
            self._time_out(job)
            return self._keep_late(job, lease, verdict)
        self._apply(job, verdict, duration_ms=duration // timedelta(milliseconds=1))
        return Answer.APPLIED

    def _refuse(self, job: _Job, lease: Lease, verdict: Verdict) -> Answer:
        """The lease had ended before: the attempt's own record says how, and so what this write is."""
        attempt = job.attempts.get(lease.epoch)
        if attempt is None:
            return Answer.STALE  # this lease was never given out
        if attempt.outcome in ("timed_out", "cancelled"):
            return self._keep_late(job, lease, verdict)
        if attempt.outcome != "reclaimed":
            return Answer.REPEATED
        self._refuse_once(job, lease)
        return Answer.STALE

    def _refuse_once(self, job: _Job, lease: Lease) -> None:
        """Put on record, once, that the holder of a reclaimed lease tried to write."""
        attempt = job.attempts.get(lease.epoch)
        if attempt is not None and attempt.outcome == "reclaimed" and lease.epoch not in job.refused:
            job.refused.add(lease.epoch)
            self._event(Kind.stale_write, job, epoch=lease.epoch, attempt=attempt.attempt)

    def _keep_late(self, job: _Job, lease: Lease, verdict: Verdict) -> Answer:
        if lease.epoch not in job.late:
            attempt = job.attempts[lease.epoch]
            result = verdict.result if isinstance(verdict, Complete) else None
            job.late[lease.epoch] = LateResult(
                job_id=job.id,
                epoch=lease.epoch,
                at=self._clock.now(),
                reason=attempt.outcome or "",
                outcome=outcome_of(verdict),
                result=json.loads(result) if result is not None else None,
            )
            self._event(
                Kind.late_result, job, epoch=lease.epoch, attempt=attempt.attempt, outcome=outcome_of(verdict)
            )
        return Answer.LATE

    def _apply(self, job: _Job, verdict: Verdict, outcome: str | None = None, **meta: Any) -> None:
        """Settle the current attempt. *outcome* overrides what its record says (a reclaim, not the worker's word)."""
        now = self._clock.now()
        match verdict:
            case Complete(result):
                job.result, job.crashes, job.last_failure = result, 0, None
                self._end_attempt(job, "complete", None)
                self._finish(job, State.COMPLETE, Kind.complete, **meta)
            case RetryAfter(delay, failure):
                self._failed_once(job, failure, outcome)
                self._end_attempt(job, outcome or "retry", failure)
                self._queue(
                    job,
                    now + delay,
                    Kind.reclaimed if outcome else Kind.retry,
                    error_code=failure.code,
                    gateway_http_status=failure.gateway_status,
                    **meta,
                )
                job.retry_type = "AUTOMATIC"
            case Bury(failure):
                self._failed_once(job, failure, outcome)
                self._end_attempt(job, outcome or "failed", failure)
                self._bury(job, failure, Kind.failed, **meta)
            case Release(delay, why, snoozed):
                job.attempt -= 1
                self._end_attempt(job, "snoozed" if snoozed else "released", None)
                self._queue(job, now + delay, Kind.snoozed if snoozed else Kind.released, why=why)

    def _failed_once(self, job: _Job, failure: Failure, outcome: str | None) -> None:
        job.crashes = job.crashes + 1 if outcome == "reclaimed" and failure.code == "WORKER_LOST" else 0
        job.last_failure = {
            "code": failure.code,
            "message": failure.message,
            "at": self._clock.now(),
            "attempt": job.attempt,
        }
        for name in failure.forget:
            job.steps.pop(name, None)

    def _end_attempt(self, job: _Job, outcome: str, failure: Failure | None) -> None:
        assert job.live is not None
        job.attempts[job.live.epoch] = Attempt(
            job_id=job.id,
            epoch=job.live.epoch,
            generation=job.generation,
            attempt=job.attempt,
            worker=job.live.session.worker,
            started_at=job.live.started_at,
            ended_at=self._clock.now(),
            outcome=outcome,
            failure=failure,
        )
        job.live = None

    def _queue(self, job: _Job, run_at: datetime, kind: Kind, **meta: Any) -> None:
        job.state, job.run_at, job.ord, job.updated_at = State.QUEUED, run_at, run_at, self._clock.now()
        self._event(kind, job, **meta)

    def _finish(self, job: _Job, state: State, kind: Kind, **meta: Any) -> None:
        job.state, job.finished_at, job.updated_at = state, self._clock.now(), self._clock.now()
        self._event(kind, job, **meta)

    def _bury(self, job: _Job, failure: Failure, kind: Kind, **meta: Any) -> None:
        job.error = failure
        job.dead = DeadLetter(
            id=job.id,
            task=job.lane.task,
            queue=job.lane.queue,
            owner=job.spec.owner,
            reason=failure.code,
            message=failure.message,
            detail=failure.detail,
            fingerprint=failure.fingerprint,
            attempts=job.attempt,
            at=self._clock.now(),
            payload=json.loads(job.payload),
        )
        self._finish(
            job, State.FAILED, kind, error_code=failure.code, gateway_http_status=failure.gateway_status
        )

    def _time_out(self, job: _Job) -> None:
        failure = Failure.of("TIMEOUT")
        if job.live is not None:
            self._end_attempt(job, "timed_out", failure)
        self._bury(job, failure, Kind.timed_out)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield None

    async def complete_in(
        self, connection: Any, lease: Lease, result: str | None, duration: timedelta
    ) -> None:
        if self._settle_one(lease, Complete(result)) is not Answer.APPLIED:
            raise LeaseLost(*lease)
        await self._committed()

    def _current(self, lease: Lease) -> _Job:
        job = self._jobs.get(lease.job_id)
        if job is None or job.live is None or job.live.epoch != lease.epoch:
            if job is not None:
                self._refuse_once(job, lease)
            raise LeaseLost(*lease)
        return job

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        self._current(lease).steps[name] = result

    async def steps(self, job_id: JobId) -> dict[str, str]:
        return dict(self._jobs[job_id].steps)

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        live = self._current(lease).live
        assert live is not None
        live.percent, live.message = percent, message

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        found: list[Expired] = []
        for job in self._jobs.values():
            lost, overran = self._ran_out(job)
            if (lost or overran) and job.live is not None and len(found) < limit:
                found.append(
                    Expired(
                        lease=Lease(job.id, job.epoch),
                        lane=job.lane,
                        attempt=job.attempt,
                        max_attempts=job.spec.max_attempts,
                        crashes=job.crashes,
                        max_crashes=job.spec.max_crashes,
                        worker=job.live.session.worker,
                        overran=not lost,
                    )
                )
        return found

    def _ran_out(self, job: _Job) -> tuple[bool, bool]:
        """(the worker was lost, the attempt overran)"""
        if job.live is None:
            return False, False
        until = job.live.run_until
        overran = until is not None and self._clock.monotonic() > until + OVERRUN_MARGIN.total_seconds()
        return not self._is_live(job.live.session), overran

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        done = 0
        for lease, verdict, crashed in reclaims:
            job = self._jobs.get(lease.job_id)
            if job is None or job.live is None or job.live.epoch != lease.epoch:
                continue
            lost, overran = self._ran_out(job)
            if lost if crashed else overran:
                self._apply(job, verdict, outcome="reclaimed")
                done += 1
        await self._committed()
        return done

    async def time_out(self, limit: int) -> list[JobId]:
        now = self._clock.now()
        passed = [
            job
            for job in self._jobs.values()
            if job.state in (State.QUEUED, State.PROCESSING)
            and job.deadline_at is not None
            and now > job.deadline_at
        ][:limit]
        for job in passed:
            self._time_out(job)
        await self._committed()
        return [job.id for job in passed]

    async def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        now, done = self._clock.now(), 0
        for job in list(self._jobs.values()):
            if job.finished_at is None or (task is not None and job.lane.task != task) or done >= limit:
                continue
            if keep.jobs is not None and job.finished_at <= now - keep.jobs and job.dead is None:
                self._forget(job)
                done += 1
            elif (
                keep.results is not None
                and job.state is State.COMPLETE
                and job.expired_at is None
                and job.finished_at <= now - keep.results
            ):
                job.result, job.expired_at, job.updated_at = None, now, now
                self._event(Kind.expired, job)
                done += 1
        if keep.events is not None and task is None:
            kept = [event for event in self._events if event.at > now - keep.events]
            done += len(self._events) - len(kept)
            self._events = kept
        await self._committed()
        return done

    def _forget(self, job: _Job) -> None:
        del self._jobs[job.id]
        if job.spec.dedupe and self._dedupe.get(job.spec.dedupe) == job.id:
            del self._dedupe[job.spec.dedupe]

    # -- people's moves ---------------------------------------------------------------------------------------------
    def _known(self, job_id: JobId) -> _Job:
        if job_id not in self._jobs:
            raise UnknownJob(job_id)
        return self._jobs[job_id]

    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        job = self._known(job_id)
        if job.state in FINISHED:
            raise Conflict(
                f"job {job_id} is {job.state} already; only a queued or processing job can be cancelled"
            )
        if job.live is not None:
            self._end_attempt(job, "cancelled", None)
        self._finish(job, State.CANCELLED, Kind.cancelled, by=by, reason=reason)
        await self._committed()

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
    ) -> int:
        job, now = self._known(job_id), self._clock.now()
        match job.state:
            case State.FAILED | State.CANCELLED:
                twin = self._twin(job.spec.dedupe)
                if twin is not None and twin is not job:
                    raise Conflict(
                        f"job {twin.id} holds the dedupe key of {job_id}; nothing was changed", twin=twin.id
                    )
                if job.spec.dedupe:
                    self._dedupe[job.spec.dedupe] = job.id
                job.generation, job.attempt, job.crashes, job.error, job.dead = (
                    job.generation + 1,
                    0,
                    0,
                    None,
                    None,
                )
                job.started_at = job.finished_at = None
                job.queued_at = now
                job.deadline_at = now + job.spec.deadline if job.spec.deadline is not None else None
                job.lane = Lane(queue, job.lane.task) if queue else job.lane
                self._lanes[job.lane] = None
            case State.PROCESSING if any(self._ran_out(job)):
                self._end_attempt(job, "reclaimed", Failure.of("WORKER_LOST"))
                self._event(Kind.reclaimed, job, by=by)
            case State.QUEUED if job.run_at > now:
                pass
            case _:
                raise Conflict(retry_refusal(job_id, job.state))
        for name in forget or ():
            job.steps.pop(name, None)
        job.retry_type, job.manual_retry_count = "MANUAL", job.manual_retry_count + 1
        self._queue(job, now, kind, by=by)
        await self._committed()
        line = [
            j
            for j in self._jobs.values()
            if j.state is State.QUEUED and j.lane == job.lane and j.run_at <= now
        ]
        return 1 + sum(
            (-j.spec.priority, j.ord, j.number) < (-job.spec.priority, job.ord, job.number) for j in line
        )

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        job = self._known(job_id)
        if job.dead is None:
            raise Conflict(f"job {job_id} has no dead letter to discard")
        job.dead = None
        self._event(Kind.discarded, job, by=by, reason=reason)
        await self._committed()

    # -- looking ----------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None:
        job = self._jobs.get(job_id)
        return self._row(job) if job else None

    def _row(self, job: _Job) -> JobRow:
        live = job.live
        return JobRow(
            id=job.id,
            task=job.lane.task,
            queue=job.lane.queue,
            owner=job.spec.owner,
            priority=job.spec.priority,
            state=job.state,
            generation=job.generation,
            epoch=job.epoch,
            attempt=job.attempt,
            max_attempts=job.spec.max_attempts,
            crashes=job.crashes,
            run_at=job.run_at,
            created_at=job.created_at,
            queued_at=job.queued_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            last_attempt_at=job.last_attempt_at,
            updated_at=job.updated_at,
            deadline_at=job.deadline_at,
            expired_at=job.expired_at,
            leased_by=live.session.worker if live else None,
            lease_expires_at=self._lease_end(live) if live else None,
            error_code=job.error.code if job.error else None,
            error_message=job.error.message if job.error else None,
            last_failure=job.last_failure,
            retry_type=job.retry_type,
            manual_retry_count=job.manual_retry_count,
            result=json.loads(job.result) if job.result is not None else None,
            tags=job.spec.tags,
            payload=json.loads(job.payload),
            progress={"percent": live.percent, "message": live.message}
            if live and live.percent is not None
            else None,
            key=job.spec.key,
        )

    def _lease_end(self, live: _Live) -> datetime:
        ends = self._sessions.get(live.session.id, (live.session, self._clock.monotonic()))[1]
        left = min(ends, live.run_until if live.run_until is not None else ends) - self._clock.monotonic()
        return self._clock.now() + timedelta(seconds=left)

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int) -> Page:
        before = _cursor(after)
        found = [
            job
            for job in sorted(self._jobs.values(), key=lambda job: -job.number)
            if (before is None or job.number < before) and _matches(job, where)
        ]
        rows = found[:limit]
        return Page([self._row(job) for job in rows], str(rows[-1].number) if len(found) > limit else None)

    async def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(State, 0)
        for job in self._jobs.values():
            counts[job.state] += 1
        return {str(state): number for state, number in counts.items()}

    async def lanes(self) -> dict[Lane, int]:
        waiting = dict.fromkeys(self._lanes, 0)
        for job in self._jobs.values():
            if job.state is State.QUEUED:
                waiting[job.lane] += 1
        return waiting

    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        return [e for e in self._events if e.id > after and (job_id is None or e.job_id == job_id)][:limit]

    async def attempts(self, job_id: JobId) -> list[Attempt]:
        job = self._jobs.get(job_id)
        if job is None:
            return []
        running = (
            [
                Attempt(
                    job_id=job.id,
                    epoch=job.live.epoch,
                    generation=job.generation,
                    attempt=job.attempt,
                    worker=job.live.session.worker,
                    started_at=job.live.started_at,
                    ended_at=None,
                    outcome=None,
                )
            ]
            if job.live
            else []
        )
        return [*job.attempts.values(), *running]

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int
    ) -> list[DeadLetter]:
        found = [
            job.dead for job in self._jobs.values() if job.dead is not None and _matches_dead(job.dead, where)
        ]
        found.sort(key=lambda letter: (letter.at, letter.id))
        if after is not None:
            found = [letter for letter in found if letter.id > after]
        return sorted(found, key=lambda letter: letter.id)[:limit]

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        groups: dict[tuple[str, str, str], list[DeadLetter]] = {}
        for job in self._jobs.values():
            if job.dead is not None and _matches_dead(job.dead, where):
                groups.setdefault((job.dead.fingerprint, job.dead.task, job.dead.reason), []).append(job.dead)
        found = [
            DeadLetterGroup(
                fingerprint=fingerprint,
                task=task,
                reason=reason,
                message=letters[-1].detail or letters[-1].message,
                count=len(letters),
                first_at=min(letter.at for letter in letters),
                last_at=max(letter.at for letter in letters),
                sample=max(letters, key=lambda letter: letter.at).id,
            )
            for (fingerprint, task, reason), letters in groups.items()
        ]
        return sorted(found, key=lambda group: -group.count)[:limit]

    async def late_results(self, job_id: JobId) -> list[LateResult]:
        return list(self._jobs[job_id].late.values()) if job_id in self._jobs else []

    async def violations(self) -> list[str]:
        return [
            f"job {job.id}: {rule}" for job in self._jobs.values() for rule in broken_rules(self._row(job))
        ]

    async def health(self) -> dict[str, Any]:
        return {"store": "memory", "durable": False}

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        await self._wait(timeout)

    async def _wait(self, timeout: float) -> None:
        bell = self._bell
        try:
            await asyncio.wait_for(bell.wait(), timeout)
        except TimeoutError:
            return

    def heart(self) -> Heart:
        return _MemoryHeart(self)

    # -- events -----------------------------------------------------------------------------------------------------
    def _event(
        self, kind: Kind, job: _Job, *, epoch: int | None = None, attempt: int | None = None, **meta: Any
    ) -> None:
        told = {name: value for name, value in meta.items() if value is not None}
        moved = Moved(
            kind,
            job.id,
            job.epoch if epoch is None else epoch,
            job.attempt if attempt is None else attempt,
            told,
        )
        self._told.append(moved)
        self._events.append(
            Event(
                id=next(self._event_ids),
                at=self._clock.now(),
                kind=kind.name,
                job_id=job.id,
                epoch=moved.epoch,
                attempt=moved.attempt,
                meta=told,
            )
        )

    def _save(self) -> None:
        """Before moves that a hook may undo: remember how everything was. Without hooks nothing can."""
        if self.hooks:
            self._saved = deepcopy((self._jobs, self._dedupe, self._events))

    async def _committed(self) -> None:
        """Tell the hooks and ring the bell. A hook that raises undoes the moves it was told about."""
        told, self._told = self._told, []
        try:
            for kinds, hook in self.hooks:
                wanted = [moved for moved in told if moved.kind in kinds]
                if wanted:
                    await hook(_NoSql(), wanted)
        except BaseException:
            if self._saved is not None:
                self._jobs, self._dedupe, self._events = self._saved
            raise
        finally:
            self._saved = None
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


class _MemoryHeart:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def beat(self, session: Session) -> bool:
        beat = self._store.extend(session)
        try:
            beat.send(None)
        except StopIteration as done:
            return bool(done.value)
        raise AssertionError("the memory store never waits")

    def close(self) -> None: ...


def _cursor(after: str | None) -> int | None:
    if after is None:
        return None
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise UsageError(f"{after!r} is not a cursor; pass the `next` of the page before")
    return int(after)


def _matches(job: _Job, where: JobFilter) -> bool:
    return (
        (not where.states or job.state in where.states)
        and (not where.tasks or job.lane.task in where.tasks)
        and (not where.queues or job.lane.queue in where.queues)
        and (where.owner is None or job.spec.owner == where.owner)
        and (where.tag is None or where.tag in job.spec.tags)
        and (not where.args or where.args.items() <= json.loads(job.payload).items())
    )


def _matches_dead(letter: DeadLetter, where: DeadLetterFilter) -> bool:
    return (
        (not where.tasks or letter.task in where.tasks)
        and (not where.queues or letter.queue in where.queues)
        and (not where.reasons or letter.reason in where.reasons)
        and (where.fingerprint is None or letter.fingerprint == where.fingerprint)
        and (where.owner is None or letter.owner == where.owner)
        and (not where.ids or letter.id in where.ids)
    )
