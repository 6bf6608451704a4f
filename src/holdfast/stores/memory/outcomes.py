"""End attempts: complete the job, queue it again or fail it; or refuse, because the lease had ended before."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from holdfast.engine.artifacts import split_result
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.jobs.external import late_key, why_late
from holdfast.jobs.job import ORDINARY_COST, DeadLetter, JobId, LateResult, Lease, Settlement
from holdfast.jobs.judgements import outcome_of
from holdfast.jobs.moves import Kind, State, allows
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.stores.encoding import cost_meta, kind_of, meta_of, verb_of
from holdfast.stores.memory.tables import Job, Tables


def settle(tables: Tables, settlement: Settlement) -> SettlementStatus:
    lease, verdict = settlement.lease, settlement.verdict
    job = tables.jobs.get(lease.job_id)
    if job is None:
        return SettlementStatus.STALE
    if not job.holds(lease) or not allows(verb_of(verdict), job.state):
        return refuse(tables, job, settlement)
    if job.deadline_at is not None and tables.clock.now() > job.deadline_at:
        time_out_one(tables, job)
        return _store_late(tables, job, settlement._replace(attempt=job.attempt), "timed_out")
    apply(tables, job, verdict, **meta_of(settlement))
    return SettlementStatus.APPLIED


def apply(tables: Tables, job: Job, verdict: Verdict, outcome: str | None = None, **meta: Any) -> None:
    """End the current attempt by *verdict*. *outcome* replaces the one in its record, because a worker does not report a reclaim."""
    now, cost = tables.clock.now(), meta.get("cost", ORDINARY_COST)
    kind, word = kind_of(verdict), outcome_of(verdict)
    match verdict:
        case Complete(result):
            job.result, job.crashes, job.last_failure = result, 0, None
            end_attempt(tables, job, word, cost=cost)
            finish(tables, job, State.COMPLETE, kind, **meta)
        case RetryAfter(delay, failure):
            _failed_once(tables, job, failure, outcome)
            end_attempt(tables, job, outcome or word, failure, cost)
            requeue(tables, job, now + delay, Kind.reclaimed if outcome else kind, **meta)
            job.retry_type = "AUTOMATIC"
        case Bury(failure):
            _failed_once(tables, job, failure, outcome)
            end_attempt(tables, job, outcome or word, failure, cost)
            _bury(tables, job, failure, kind, **meta)
        case Release(delay):
            given_back = job.attempt
            job.attempt -= 1
            end_attempt(tables, job, word, cost=cost)
            requeue(tables, job, now + delay, kind, given_back, **meta)


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


def end_attempt(
    tables: Tables, job: Job, outcome: str, failure: Failure | None = None, cost: float | None = None
) -> None:
    """Write the record of the current attempt, and end its lease."""
    assert job.live is not None
    job.attempts[job.live.epoch] = job.current_attempt(tables.clock.now(), outcome, failure, cost)
    job.live = None


def requeue(
    tables: Tables, job: Job, run_at: datetime, kind: Kind, attempt: int | None = None, **meta: Any
) -> None:
    """Queue a job again, due at *run_at*. *attempt* is the one in the event; None takes the job's own."""
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
def refuse(tables: Tables, job: Job, settlement: Settlement) -> SettlementStatus:
    """Return why a settlement has changed nothing, from the record of the attempt."""
    lease = settlement.lease
    attempt = job.attempts.get(lease.epoch)
    if attempt is None:
        return SettlementStatus.STALE  # this lease never existed
    if attempt.outcome in ("timed_out", "cancelled"):
        return _store_late(tables, job, settlement._replace(attempt=attempt.attempt), attempt.outcome)
    if attempt.outcome != "reclaimed":
        return SettlementStatus.REPEATED
    refuse_once(tables, job, lease)
    return SettlementStatus.STALE


def refuse_once(tables: Tables, job: Job, lease: Lease) -> None:
    """Record, once, that a worker tried to write under a lease that was reclaimed."""
    attempt = job.attempts.get(lease.epoch)
    if attempt is not None and attempt.outcome == "reclaimed" and lease.epoch not in job.refused:
        job.refused.add(lease.epoch)
        tables.record(Kind.stale_write, job, epoch=lease.epoch, attempt=attempt.attempt)


def settle_unheld(
    tables: Tables, job_id: JobId, generation: int, verdict: Verdict, by: str
) -> SettlementStatus:
    """Store a result that an external task has reported after its job had ended."""
    job = tables.jobs[job_id]
    if job.generation != generation or job.finished_at is None:
        meta = {"by": by, "generation": generation}
        tables.note(job_id, Kind.stale_write, f"generation {generation}", meta)
        return SettlementStatus.STALE
    reason = why_late(job.state, job.error.code if job.error else None)
    if reason is None:
        return SettlementStatus.REPEATED
    last = job.attempts.get(job.epoch)
    ended = None if last is None else (last.epoch, last.outcome or "", last.generation)
    late = Settlement(Lease(job_id, late_key(generation, ended)), verdict, job.attempt)
    return _store_late(tables, job, late, reason)


def _store_late(tables: Tables, job: Job, late: Settlement, reason: str) -> SettlementStatus:
    lease, verdict = late.lease, late.verdict
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
        meta = {"outcome": outcome, **cost_meta(late)}
        tables.record(Kind.late_result, job, epoch=lease.epoch, attempt=late.attempt, **meta)
    return SettlementStatus.LATE


# -- writes under a lease: they raise `LeaseLost` if it is not current ------------------------------------------------------------------------------------
def complete_in(tables: Tables, settlement: Settlement) -> None:
    lease = settlement.lease
    job = tables.jobs.get(lease.job_id)
    late = job is not None and job.deadline_at is not None and tables.clock.now() > job.deadline_at
    if job is None or late or not job.holds(lease):
        raise LeaseLost(*lease)
    settle(tables, settlement)


def record_step(tables: Tables, lease: Lease, name: str, result: str) -> None:
    _current(tables, lease).steps[name] = result


def record_progress(tables: Tables, lease: Lease, percent: float, message: str) -> None:
    live = _current(tables, lease).live
    assert live is not None
    live.percent, live.message = percent, message


def _current(tables: Tables, lease: Lease) -> Job:
    """Return the job of a current lease, or raise `LeaseLost`."""
    job = tables.jobs.get(lease.job_id)
    if job is None or not job.holds(lease):
        if job is not None:
            refuse_once(tables, job, lease)
        raise LeaseLost(*lease)
    return job
