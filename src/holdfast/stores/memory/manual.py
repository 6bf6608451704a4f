"""What a person does with a job: cancel it, retry it, or discard its dead letter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Changed, Conflict
from holdfast.jobs.job import Edit, JobId, Lease
from holdfast.jobs.judgements import retry_refusal
from holdfast.jobs.moves import FINISHED, Kind, State, allows
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition, Version
from holdfast.jobs.verdict import Bury, Failure, RetryAfter
from holdfast.stores.encoding import key_is_taken, lost_failure, manual_meta, no_dead_letter, not_cancellable
from holdfast.stores.memory.intake import ready_jobs, twin_of
from holdfast.stores.memory.outcomes import apply, end_attempt, finish, requeue
from holdfast.stores.memory.recovery import ran_out
from holdfast.stores.memory.tables import Job, Tables


def cancel(tables: Tables, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    job = tables.find(job_id)
    if not _is_new(job, precondition):
        return
    if not allows("cancel", job.state):
        raise not_cancellable(job_id, job.state)
    if job.live is not None:
        end_attempt(tables, job, "cancelled")
    finish(tables, job, State.CANCELLED, Kind.cancelled, **manual_meta(by, reason))
    job.done |= _tokens(precondition)


def retry(
    tables: Tables,
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
    charges: Sequence[Charge] = (),
    charge: Callable[[Sequence[Charge]], None],
) -> int:
    job, now = tables.find(job_id), tables.clock.now()
    ready_jobs(tables, now)  # a job that is due is ready, even if no worker has claimed since
    if not _is_new(job, precondition):
        return _place(tables, job, now)
    if kind is Kind.redriven and job.dead is None:
        raise no_dead_letter(job_id)
    if not allows("retry", job.state):
        raise Conflict(retry_refusal(job_id, job.state))
    if job.state in FINISHED:
        _require_key(tables, job)
        charge(charges)  # before anything changes, because a refusal undoes only SQL
        _start_again(tables, job, queue, now)
    elif job.live is not None:
        _take_from_worker(tables, job, queue, by, stuck, lambda: charge(charges))
    elif not job.deferred:
        raise Conflict(retry_refusal(job_id, job.state))
    if edit is not None:
        job.payload, job.spec = edit.payload, replace(job.spec, version=edit.version)
    if priority is not None:
        job.spec = replace(job.spec, priority=priority)
    for name in list(job.steps) if edit is not None and forget is None else forget or ():
        job.steps.pop(name, None)
    job.retry_type, job.manual_retry_count = "MANUAL", job.manual_retry_count + 1
    requeue(tables, job, now, kind, **manual_meta(by, edit=edit, priority=priority))
    job.done |= _tokens(precondition)
    return _place(tables, job, now)


def _take_from_worker(
    tables: Tables,
    job: Job,
    queue: str | None,
    by: str,
    stuck: StuckAttempt | None,
    charge: Callable[[], None],
) -> None:
    """End the attempt of a job whose lease has expired, or which is *stuck*. If it was the last, the job starts again."""
    lost = _why_lost(tables, job, stuck)
    if lost is None:
        raise Conflict(retry_refusal(job.id, job.state))
    meta = {"error_code": lost.code, **manual_meta(by)}
    if job.attempt >= job.spec.max_attempts:
        charge()
        apply(tables, job, Bury(lost), outcome="reclaimed", **meta)
        _start_again(tables, job, queue, tables.clock.now())
    else:
        apply(tables, job, RetryAfter(timedelta(), lost), outcome="reclaimed", **meta)


def _why_lost(tables: Tables, job: Job, stuck: StuckAttempt | None) -> Failure | None:
    """Return why the job may be taken from its worker; None if it may not."""
    gone, overran = ran_out(tables, job)
    if gone or overran:
        return lost_failure(overran=not gone)
    return stuck.failure if stuck is not None and stuck.lease == Lease(job.id, job.epoch) else None


def _is_new(job: Job, precondition: Precondition) -> bool:
    """Return whether this very call was not carried out before. Raises `Changed` if the job is not as the caller has read it."""
    if precondition.token in job.done:
        return False
    version = Version.of(job.state, job.generation, job.epoch, job.manual_retry_count, job.updated_at)
    if not precondition.admits(version):
        raise Changed(f"job {job.id}")
    return True


def _tokens(precondition: Precondition) -> set[str]:
    return set() if precondition.token is None else {precondition.token}


def _place(tables: Tables, job: Job, now: datetime) -> int:
    return 1 + sum(j.place < job.place for j in ready_jobs(tables, now) if j.lane == job.lane)


def _require_key(tables: Tables, job: Job) -> None:
    """Raise `Conflict` if another job has the dedupe key of this one."""
    twin = twin_of(tables, job.spec.dedupe)
    if twin is not None and twin is not job:
        raise key_is_taken(job.id, twin.id)


def _start_again(tables: Tables, job: Job, queue: str | None, now: datetime) -> None:
    if job.spec.dedupe:
        tables.dedupe[job.spec.dedupe] = job.id
    job.generation, job.attempt, job.crashes = job.generation + 1, 0, 0
    job.error = job.dead = job.started_at = job.finished_at = None
    job.queued_at = now
    job.deadline_at = now + job.spec.deadline if job.spec.deadline is not None else None
    job.lane = job.lane._replace(queue=queue) if queue else job.lane
    tables.lanes[job.lane] = None


def discard(tables: Tables, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    job = tables.find(job_id)
    if not _is_new(job, precondition):
        return
    if job.dead is None:
        raise no_dead_letter(job_id)
    job.dead = None
    job.done |= _tokens(precondition)
    tables.record(Kind.discarded, job, **manual_meta(by, reason))
