"""What people do with a job: cancel it, retry it, discard its dead letter."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.domain.job import Edit, JobId, Lease
from holdfast.domain.judgements import retry_refusal
from holdfast.domain.moves import FINISHED, Kind, State
from holdfast.domain.precondition import Precondition, Version
from holdfast.domain.verdict import Bury, Failure, RetryAfter
from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Changed, Conflict
from holdfast.stores.encoding import key_is_taken, lost_failure, no_dead_letter, not_cancellable, said
from holdfast.stores.memory.intake import in_line, twin_of
from holdfast.stores.memory.outcomes import apply, end_attempt, finish, into_line
from holdfast.stores.memory.recovery import ran_out
from holdfast.stores.memory.tables import Job, Tables


def cancel(tables: Tables, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    job = tables.find(job_id)
    if not _is_new(job, precondition):
        return
    if job.state in FINISHED:
        raise not_cancellable(job_id, job.state)
    if job.live is not None:
        end_attempt(tables, job, "cancelled")
    finish(tables, job, State.CANCELLED, Kind.cancelled, **said(by, reason))
    job.done |= _names(precondition)


def retry(
    tables: Tables,
    job_id: JobId,
    by: str,
    kind: Kind,
    forget: Collection[str] | None,
    queue: str | None,
    edit: Edit | None,
    priority: int | None,
    precondition: Precondition,
    stuck: StuckAttempt | None,
) -> int:
    job, now = tables.find(job_id), tables.clock.now()
    in_line(tables, now)  # who is due is in line, whether or not a worker has looked
    if not _is_new(job, precondition):
        return _place(tables, job, now)
    if kind is Kind.redriven and job.dead is None:
        raise no_dead_letter(job_id)
    match job.state:
        case State.FAILED | State.CANCELLED:
            _new_generation(tables, job, queue, now)
        case State.PROCESSING if (lost := _why_lost(tables, job, stuck)) is not None:
            meta = {"error_code": lost.code, **said(by)}
            if job.attempt >= job.spec.max_attempts:  # the last one: it ends here, and the retry begins anew
                apply(tables, job, Bury(lost), outcome="reclaimed", **meta)
                _new_generation(tables, job, queue, now)
            else:
                apply(tables, job, RetryAfter(timedelta(), lost), outcome="reclaimed", **meta)
        case State.QUEUED if job.deferred:
            pass  # waiting: let in below
        case _:
            raise Conflict(retry_refusal(job_id, job.state))
    if edit is not None:
        job.payload, job.spec = edit.payload, replace(job.spec, version=edit.version)
    if priority is not None:
        job.spec = replace(job.spec, priority=priority)
    for name in list(job.steps) if edit is not None and forget is None else forget or ():
        job.steps.pop(name, None)
    job.retry_type, job.manual_retry_count = "MANUAL", job.manual_retry_count + 1
    into_line(tables, job, now, kind, **said(by, edit=edit, priority=priority))
    job.done |= _names(precondition)
    return _place(tables, job, now)


def _why_lost(tables: Tables, job: Job, stuck: StuckAttempt | None) -> Failure | None:
    """None: its attempt is in order."""
    gone, overran = ran_out(tables, job)
    if gone or overran:
        return lost_failure(overran=not gone)
    return stuck.failure if stuck is not None and stuck.lease == Lease(job.id, job.epoch) else None


def _is_new(job: Job, precondition: Precondition) -> bool:
    """Whether this very call was not carried out before; `Changed` when it may not be any more."""
    if precondition.token in job.done:
        return False
    version = Version.of(job.state, job.generation, job.epoch, job.manual_retry_count, job.updated_at)
    if not precondition.admits(version):
        raise Changed(f"job {job.id}")
    return True


def _names(precondition: Precondition) -> set[str]:
    return set() if precondition.token is None else {precondition.token}


def _place(tables: Tables, job: Job, now: datetime) -> int:
    return 1 + sum(j.place < job.place for j in in_line(tables, now) if j.lane == job.lane)


def _new_generation(tables: Tables, job: Job, queue: str | None, now: datetime) -> None:
    twin = twin_of(tables, job.spec.dedupe)
    if twin is not None and twin is not job:
        raise key_is_taken(job.id, twin.id)
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
    job.done |= _names(precondition)
    tables.record(Kind.discarded, job, **said(by, reason))
