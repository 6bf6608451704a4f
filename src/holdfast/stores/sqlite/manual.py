"""What a person does with a job: cancel it, retry it, or discard its dead letter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Changed, Conflict
from holdfast.jobs.job import Edit, JobId, Lease
from holdfast.jobs.judgements import retry_refusal
from holdfast.jobs.moves import Kind
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition, Version
from holdfast.jobs.verdict import Failure, RetryAfter
from holdfast.stores.encoding import (
    DeadlineGuard,
    key_is_taken,
    lost_failure,
    manual_meta,
    no_dead_letter,
    not_cancellable,
)
from holdfast.stores.sqlite.intake import promote, take_key, twin_of
from holdfast.stores.sqlite.limits import charge_manual_retry
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.outcomes import bury, end_attempt, reclaim
from holdfast.stores.sqlite.phases import STATES
from holdfast.stores.sqlite.recovery import ran_out
from holdfast.stores.sqlite.times import moment


def cancel(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    if _is_repeated(move, job_id, precondition):
        return
    _check(move, job_id, precondition)
    end_attempt(move, "cancel", job_id, "cancelled", None, DeadlineGuard.ANY)
    rows = move.run("cancel", uid=job_id, now=move.now).fetchall()
    if not rows:
        raise not_cancellable(job_id, STATES[move.find(job_id).phase])
    [(epoch, attempt)] = rows
    meta = manual_meta(by, reason, precondition.token)
    move.record_one(Kind.cancelled, Lease(job_id, epoch), attempt, **meta)


def retry(
    move: Move,
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
) -> int:
    promote(move, 1000)  # a job that is due is ready, even if no worker has claimed since
    if _is_repeated(move, job_id, precondition):
        return _position(move, job_id)
    _check(move, job_id, precondition)
    if kind is Kind.redriven:
        _require_dead_letter(move, job_id)
    number, epoch, attempt = (
        _start_again(move, job_id, queue, charges)
        or _make_due(move, job_id)
        or _take_from_worker(move, job_id, queue, by, stuck, charges)
        or _refuse(move, job_id)
    )
    if edit is not None:
        move.connection.execute(
            "UPDATE holdfast_job AS job SET payload = ?, version = ? WHERE id = ?",
            (edit.payload, edit.version, number),
        )
    if priority is not None:
        move.connection.execute("UPDATE holdfast_job SET prio = ? WHERE id = ?", (-priority, number))
    if forget is not None or edit is not None:
        move.forget_steps(number, forget)
    meta = manual_meta(by, token=precondition.token, edit=edit, priority=priority)
    move.record_one(kind, Lease(job_id, epoch), attempt, **meta)
    return _position(move, job_id)


#: The number of the job that a retry has moved, its epoch and its attempt.
Moved = tuple[int, int, int]


def _start_again(move: Move, job_id: JobId, queue: str | None, charges: Sequence[Charge]) -> Moved | None:
    """Queue a finished job again, as a new generation."""
    lane = None if queue is None else _lane_in(move, job_id, queue)
    for number, epoch, digest in move.run("retry", uid=job_id, now=move.now, lane=lane).fetchall():
        if digest is not None:
            twin = twin_of(move, digest)
            if twin is not None and twin != job_id:
                raise key_is_taken(job_id, twin)
            take_key(move, digest, number)
        charge_manual_retry(move, charges)
        move.connection.execute("DELETE FROM holdfast_dead_letter WHERE job = ?", (number,))
        return number, epoch, 0
    return None


def _make_due(move: Move, job_id: JobId) -> Moved | None:
    """Make a deferred job ready."""
    rows: list[Moved] = move.run("hasten", uid=job_id, now=move.now).fetchall()
    return rows[0] if rows else None


def _take_from_worker(
    move: Move,
    job_id: JobId,
    queue: str | None,
    by: str,
    stuck: StuckAttempt | None,
    charges: Sequence[Charge],
) -> Moved | None:
    """Queue a job whose lease has expired, or whose attempt is *stuck*. If it has no attempt left, it fails and starts again."""
    job = move.find(job_id)
    lost = _why_lost(move, job.lease, stuck)
    if lost is None:
        return None
    failure, crashes = lost
    meta = manual_meta(by)
    if job.attempt >= job.max_attempts:
        meta = {"error_code": failure.code, **meta}
        bury(move, "reclaim", job_id, failure, DeadlineGuard.ANY, epoch=job.epoch, crashes=crashes, meta=meta)
        return _start_again(move, job_id, queue, charges)
    if not reclaim(move, job.lease, RetryAfter(timedelta(), failure), crashes, meta):
        return None
    move.connection.execute(
        "UPDATE holdfast_job AS job SET retry_type = 'MANUAL', manual_retries = manual_retries + 1 WHERE id = ?",
        (job.number,),
    )
    return job.number, job.epoch, job.attempt


def _why_lost(move: Move, lease: Lease, stuck: StuckAttempt | None) -> tuple[Failure, int | None] | None:
    """Return why a lease may be taken from its worker, and the crash that it counts as, if any; None if it may not."""
    overran = ran_out(move).get(lease)
    if overran is not None:
        return lost_failure(overran=overran), None if overran else 1
    return (stuck.failure, None) if stuck is not None and stuck.lease == lease else None


def _refuse(move: Move, job_id: JobId) -> Moved:
    raise Conflict(retry_refusal(job_id, STATES[move.find(job_id).phase]))


def _lane_in(move: Move, job_id: JobId, queue: str) -> int:
    """Return the number of the lane that the job's task has in another queue."""
    lane = move.lane_of[move.find(job_id).lane]
    return move.lanes.number(move.connection, lane._replace(queue=queue))


def _position(move: Move, job_id: JobId) -> int:
    [(position,)] = move.run("position", uid=job_id)
    # 0 if the job is not ready any more: this call was sent again after its answer was lost.
    return max(1, int(position))


def _require_dead_letter(move: Move, job_id: JobId) -> None:
    sql = "SELECT 1 FROM holdfast_dead_letter WHERE job = ?"
    if move.connection.execute(sql, (move.find(job_id).number,)).fetchone() is None:
        raise no_dead_letter(job_id)


def _is_repeated(move: Move, job_id: JobId, precondition: Precondition) -> bool:
    """Return whether this very call was carried out before."""
    if precondition.token is None:
        return False
    sql = "SELECT 1 FROM holdfast_event WHERE job = ? AND moves ->> '$[0][3].token' = ?"
    return move.connection.execute(sql, (job_id, precondition.token)).fetchone() is not None


def _check(move: Move, job_id: JobId, precondition: Precondition) -> None:
    """Raise `Changed` if the job is not as the caller has read it. There is one writer, so it stays so until the move."""
    if precondition.versions is None:
        return
    job = move.find(job_id)
    [(generation, epoch, retries, updated_at)] = move.connection.execute(
        "SELECT generation, epoch, manual_retries, updated_at FROM holdfast_job WHERE id = ?", (job.number,)
    )
    version = Version.of(STATES[job.phase], generation, epoch, retries, moment(updated_at))
    if not precondition.admits(version):
        raise Changed(f"job {job_id}")


def discard(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    if _is_repeated(move, job_id, precondition):
        return
    _check(move, job_id, precondition)
    job = move.find(job_id)
    if not move.connection.execute("DELETE FROM holdfast_dead_letter WHERE job = ?", (job.number,)).rowcount:
        raise no_dead_letter(job_id)
    move.record_one(Kind.discarded, job.lease, job.attempt, **manual_meta(by, reason, precondition.token))
