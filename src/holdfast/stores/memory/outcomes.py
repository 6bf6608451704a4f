"""An attempt's end: complete, back into line, buried; or refused, because its lease had ended before."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from holdfast.domain.external import late_key, why_late
from holdfast.domain.job import DeadLetter, JobId, LateResult, Lease, Settlement
from holdfast.domain.judgements import outcome_of
from holdfast.domain.moves import Kind, State
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.artifacts import split_result
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.stores.encoding import kind_of, meta_of
from holdfast.stores.memory.notes import note
from holdfast.stores.memory.tables import Job, Tables


def settle(tables: Tables, settlement: Settlement) -> SettlementStatus:
    lease, verdict = settlement.lease, settlement.verdict
    job = tables.jobs.get(lease.job_id)
    if job is None:
        return SettlementStatus.STALE
    if not job.holds(lease):
        return refuse(tables, job, lease, verdict)
    if job.deadline_at is not None and tables.clock.now() > job.deadline_at:
        time_out_one(tables, job)
        return _keep_late(tables, job, lease, verdict, job.attempt, "timed_out")
    apply(tables, job, verdict, **meta_of(settlement))
    return SettlementStatus.APPLIED


def apply(tables: Tables, job: Job, verdict: Verdict, outcome: str | None = None, **meta: Any) -> None:
    """Settle the current attempt. *outcome* overrides what its record says (a reclaim, not the worker's word)."""
    now = tables.clock.now()
    kind, word = kind_of(verdict), outcome_of(verdict)
    match verdict:
        case Complete(result):
            job.result, job.crashes, job.last_failure = result, 0, None
            end_attempt(tables, job, word)
            finish(tables, job, State.COMPLETE, kind, **meta)
        case RetryAfter(delay, failure):
            _failed_once(tables, job, failure, outcome)
            end_attempt(tables, job, outcome or word, failure)
            into_line(tables, job, now + delay, Kind.reclaimed if outcome else kind, **meta)
            job.retry_type = "AUTOMATIC"
        case Bury(failure):
            _failed_once(tables, job, failure, outcome)
            end_attempt(tables, job, outcome or word, failure)
            _bury(tables, job, failure, kind, **meta)
        case Release(delay):
            given_back = job.attempt
            job.attempt -= 1
            end_attempt(tables, job, word)
            into_line(tables, job, now + delay, kind, given_back, **meta)


def _failed_once(tables: Tables, job: Job, failure: Failure, outcome: str | None) -> None:
    job.crashes = job.crashes + 1 if outcome == "reclaimed" and failure.code == "WORKER_LOST" else 0
    job.last_failure = {
        "code": failure.code,
        "message": failure.message,
        "at": tables.clock.now(),
        "attempt": job.attempt,
    }
    for name in failure.forget:
        job.steps.pop(name, None)


def end_attempt(tables: Tables, job: Job, outcome: str, failure: Failure | None = None) -> None:
    """Write down the attempt that ends; its lease is gone."""
    assert job.live is not None
    job.attempts[job.live.epoch] = job.current_attempt(tables.clock.now(), outcome, failure)
    job.live = None


def into_line(
    tables: Tables, job: Job, run_at: datetime, kind: Kind, attempt: int | None = None, **meta: Any
) -> None:
    """*attempt* is the one the event speaks of, where the job's own is another."""
    now = tables.clock.now()
    job.state, job.run_at, job.ord, job.updated_at = State.QUEUED, run_at, run_at, now
    job.deferred = run_at > now
    tables.record(kind, job, attempt=attempt, **meta)


def finish(tables: Tables, job: Job, state: State, kind: Kind, **meta: Any) -> None:
    job.state, job.finished_at, job.updated_at = state, tables.clock.now(), tables.clock.now()
    tables.record(kind, job, **meta)


def _bury(tables: Tables, job: Job, failure: Failure, kind: Kind, **meta: Any) -> None:
    job.error = failure
    job.dead = DeadLetter(
        id=job.id,
        task=job.lane.task,
        queue=job.lane.queue,
        owner=job.spec.owner,
        code=failure.code,
        message=failure.message,
        detail=failure.detail,
        fingerprint=failure.fingerprint,
        attempts=job.attempt,
        at=tables.clock.now(),
        payload=json.loads(job.payload),
    )
    finish(tables, job, State.FAILED, kind, **meta)


def time_out_one(tables: Tables, job: Job) -> None:
    failure = Failure.of("TIMEOUT")
    if job.live is not None:
        end_attempt(tables, job, "timed_out", failure)
    _bury(tables, job, failure, Kind.timed_out, error_code=failure.code)


# -- refusals -------------------------------------------------------------------------------------------------------------
def refuse(tables: Tables, job: Job, lease: Lease, verdict: Verdict) -> SettlementStatus:
    """The lease had ended before: the attempt's own record says how, and so what this write is."""
    attempt = job.attempts.get(lease.epoch)
    if attempt is None:
        return SettlementStatus.STALE  # this lease was never given out
    if attempt.outcome in ("timed_out", "cancelled"):
        return _keep_late(tables, job, lease, verdict, attempt.attempt, attempt.outcome)
    if attempt.outcome != "reclaimed":
        return SettlementStatus.REPEATED
    refuse_once(tables, job, lease)
    return SettlementStatus.STALE


def refuse_once(tables: Tables, job: Job, lease: Lease) -> None:
    """Put on record, once, that the holder of a reclaimed lease tried to write."""
    attempt = job.attempts.get(lease.epoch)
    if attempt is not None and attempt.outcome == "reclaimed" and lease.epoch not in job.refused:
        job.refused.add(lease.epoch)
        tables.record(Kind.stale_write, job, epoch=lease.epoch, attempt=attempt.attempt)


def settle_unheld(
    tables: Tables, job_id: JobId, generation: int, verdict: Verdict, by: str
) -> SettlementStatus:
    """What came for a job that has ended, from somebody who holds no lease of it."""
    job = tables.jobs[job_id]
    if job.generation != generation or job.finished_at is None:
        told = {"by": by, "generation": generation}
        note(tables, job_id, Kind.stale_write, f"generation {generation}", told)
        return SettlementStatus.STALE
    reason = why_late(job.state, job.error.code if job.error else None)
    if reason is None:
        return SettlementStatus.REPEATED
    last = job.attempts.get(job.epoch)
    known = None if last is None else (last.epoch, last.outcome or "", last.generation)
    return _keep_late(tables, job, Lease(job_id, late_key(generation, known)), verdict, job.attempt, reason)


def _keep_late(
    tables: Tables, job: Job, lease: Lease, verdict: Verdict, attempt: int, reason: str
) -> SettlementStatus:
    if lease.epoch not in job.late:
        outcome = outcome_of(verdict)
        result, artifact = split_result(verdict.result if isinstance(verdict, Complete) else None)
        job.late[lease.epoch] = LateResult(
            job_id=job.id,
            epoch=lease.epoch,
            at=tables.clock.now(),
            reason=reason,
            outcome=outcome,
            result=json.loads(result) if result is not None else None,
            artifact=artifact,
        )
        tables.record(Kind.late_result, job, epoch=lease.epoch, attempt=attempt, outcome=outcome)
    return SettlementStatus.LATE


# -- under a lease, while it holds ------------------------------------------------------------------------------------------
def complete_in(tables: Tables, lease: Lease, end: Complete, duration: timedelta) -> None:
    job = tables.jobs.get(lease.job_id)
    late = job is not None and job.deadline_at is not None and tables.clock.now() > job.deadline_at
    if job is None or late or not job.holds(lease):
        raise LeaseLost(*lease)
    settle(tables, Settlement(lease, end, duration=duration))


def record_step(tables: Tables, lease: Lease, name: str, result: str) -> None:
    _current(tables, lease).steps[name] = result


def record_progress(tables: Tables, lease: Lease, percent: float, message: str) -> None:
    live = _current(tables, lease).live
    assert live is not None
    live.percent, live.message = percent, message


def _current(tables: Tables, lease: Lease) -> Job:
    """The job that *lease* still holds, or `LeaseLost`."""
    job = tables.jobs.get(lease.job_id)
    if job is None or not job.holds(lease):
        if job is not None:
            refuse_once(tables, job, lease)
        raise LeaseLost(*lease)
    return job
