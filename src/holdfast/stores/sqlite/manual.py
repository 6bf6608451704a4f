"""What people do with a job: cancel it, retry it, discard its dead letter."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from holdfast.domain.job import Edit, JobId
from holdfast.domain.judgements import retry_refusal
from holdfast.domain.moves import Kind
from holdfast.domain.precondition import Precondition, Version
from holdfast.domain.verdict import Failure, RetryAfter
from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Changed, Conflict
from holdfast.stores.encoding import key_is_taken, lost_failure, no_dead_letter, not_cancellable, said
from holdfast.stores.sqlite.intake import promote, take_key, twin_of
from holdfast.stores.sqlite.move import Found, Move
from holdfast.stores.sqlite.outcomes import bury, end_attempt, reclaim_one
from holdfast.stores.sqlite.phases import CANCELLED, DEFERRED, FAILED, PROCESSING, STATES
from holdfast.stores.sqlite.recovery import ran_out
from holdfast.stores.sqlite.times import moment


def cancel(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    job = move.find(job_id)
    if _was_done(move, job, precondition):
        return
    _check(move, job, precondition)
    if job.phase > PROCESSING:
        raise not_cancellable(job_id, STATES[job.phase])
    end_attempt(move, job, "cancelled", None)
    move.run("cancel", id=job.number, now=move.now)
    move.record_one(Kind.cancelled, job.lease, job.attempt, **said(by, reason, precondition.token))


def retry(
    move: Move,
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
    promote(move, 1000)  # what is due is in line, whether or not a worker has looked
    job = move.find(job_id)
    if _was_done(move, job, precondition):
        return _place(move, job)
    _check(move, job, precondition)
    if kind is Kind.redriven and not _has_dead_letter(move, job):
        raise no_dead_letter(job_id)
    attempt = job.attempt
    if job.phase in (FAILED, CANCELLED):
        _new_generation(move, job, queue)
        attempt = 0  # it begins anew
    elif job.phase == PROCESSING and (taken := _why_lost(move, job, stuck)) is not None:
        lost, crashes = taken
        if job.attempt >= job.max_attempts:  # the last one: it ends here, and the retry begins anew
            end_attempt(move, job, "reclaimed", lost)
            bury(move, job, lost, Kind.failed, crashes=crashes, by=by)
            terms = Precondition(token=precondition.token)
            return retry(move, job_id, by, kind, forget, queue, edit, priority, terms, None)
        reclaim_one(move, job, RetryAfter(timedelta(), lost), crashes)
        move.record_one(Kind.reclaimed, job.lease, attempt, error_code=lost.code, **said(by))
        move.connection.execute(
            "UPDATE holdfast_job AS job SET retry_type = 'MANUAL', manual_retries = manual_retries + 1 WHERE id = ?",
            (job.number,),
        )
    elif job.phase == DEFERRED:
        move.run("hasten", id=job.number, now=move.now)
    else:
        raise Conflict(retry_refusal(job_id, STATES[job.phase]))
    if edit is not None:
        move.connection.execute(
            "UPDATE holdfast_job AS job SET payload = ?, version = ? WHERE id = ?",
            (edit.payload, edit.version, job.number),
        )
    if priority is not None:
        move.connection.execute("UPDATE holdfast_job SET prio = ? WHERE id = ?", (-priority, job.number))
    if forget is not None or edit is not None:
        move.forget_steps(job.number, forget)
    meta = said(by, token=precondition.token, edit=edit, priority=priority)
    move.record_one(kind, job.lease, attempt, **meta)
    return _place(move, job)


def _why_lost(move: Move, job: Found, stuck: StuckAttempt | None) -> tuple[Failure, int | None] | None:
    """And the crash it counts as, if it does; None: its attempt is in order."""
    overran = ran_out(move).get(job.lease)
    if overran is not None:
        return lost_failure(overran=overran), None if overran else 1
    return (stuck.failure, None) if stuck is not None and stuck.lease == job.lease else None


def _place(move: Move, job: Found) -> int:
    [(place,)] = move.run("position", id=job.number)
    return max(
        1, int(place)
    )  # it is not in line any more where this is asked once more, after the answer was lost


def _has_dead_letter(move: Move, job: Found) -> bool:
    sql = "SELECT 1 FROM holdfast_dead_letter WHERE job = ?"
    return move.connection.execute(sql, (job.number,)).fetchone() is not None


def _was_done(move: Move, job: Found, precondition: Precondition) -> bool:
    """Whether this very call was carried out before."""
    if precondition.token is None:
        return False
    sql = "SELECT 1 FROM holdfast_event WHERE job = ? AND moves ->> '$[0][3].token' = ?"
    return move.connection.execute(sql, (job.uid, precondition.token)).fetchone() is not None


def _check(move: Move, job: Found, precondition: Precondition) -> None:
    """Nobody comes between this look and the move: there is one writer at a time."""
    if precondition.versions is None:
        return
    [(generation, epoch, retries, updated_at)] = move.connection.execute(
        "SELECT generation, epoch, manual_retries, updated_at FROM holdfast_job WHERE id = ?", (job.number,)
    )
    version = Version.of(STATES[job.phase], generation, epoch, retries, moment(updated_at))
    if not precondition.admits(version):
        raise Changed(f"job {job.uid}")


def _new_generation(move: Move, job: Found, queue: str | None) -> None:
    if job.dedupe is not None:
        twin = twin_of(move, job.dedupe)
        if twin is not None and twin != job.uid:
            raise key_is_taken(job.uid, twin)
        take_key(move, job.dedupe, job.number)
    lane = job.lane
    if queue is not None:
        named = move.lanes.by_number(move.connection)[lane]
        lane = move.lanes.number(move.connection, named._replace(queue=queue))
    move.connection.execute("DELETE FROM holdfast_dead_letter WHERE job = ?", (job.number,))
    move.run("retry", id=job.number, now=move.now, lane=lane)


def discard(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    job = move.find(job_id)
    if _was_done(move, job, precondition):
        return
    _check(move, job, precondition)
    if not move.connection.execute("DELETE FROM holdfast_dead_letter WHERE job = ?", (job.number,)).rowcount:
        raise no_dead_letter(job_id)
    move.record_one(Kind.discarded, job.lease, job.attempt, **said(by, reason, precondition.token))
