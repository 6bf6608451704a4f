"""Manual retries (S2, E33) of pictures that have failed, are stuck, or wait for an automatic retry.

The engine decides in one guarded move, even when it takes a stuck job from its worker, so two concurrent
requests, or a request and the scheduler, cause one attempt. A waiting automatic retry is replaced. This
module only explains a refusal.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast import Conflict, Holdfast, JobRow, State
from holdfast.logging import Log
from systems.screenshots.web.problems import Refused

log = Log("screenshots.retrying")

_DEFAULT_LIMIT = timedelta(minutes=30)


async def retry(app: Holdfast, row: JobRow, *, by: str, priority: int | None) -> int:
    """Retry the job that was read as *row*, and return its queue position.

    A *priority* replaces the job's own.

    Raises `Refused` with 400 when the job cannot be retried, and `Conflict` when it changed after it was
    read.
    """
    if row.state is State.COMPLETE:
        raise _not_retryable(app, row)
    try:
        position = await app.jobs.retry(row.id, by=by, priority=priority)
    except Conflict:
        if await _is_unchanged(app, row):
            raise _not_retryable(app, row) from None
        raise
    log.info(
        "job.retried",
        job_id=row.id,
        by=by,
        state_before=row.state.value,
        position=position,
        priority=priority,
    )
    if row.state is State.QUEUED:
        log.info("job.retry_replaced", job_id=row.id, by=by, due_before=row.run_at.isoformat())
    return position


async def _is_unchanged(app: Holdfast, row: JobRow) -> bool:
    """Return whether the job is as in *row*, or complete.

    Then a rule refused the retry; otherwise another move came first.
    """
    now = await app.jobs.get(row.id)
    return now.state is State.COMPLETE or _version(now) == _version(row)


def _version(row: JobRow) -> tuple[State, int, int, int]:
    return row.state, row.generation, row.epoch, row.manual_retry_count


def _not_retryable(app: Holdfast, row: JobRow) -> Refused:
    limit = app.tasks[row.task].policy.stuck_after or _DEFAULT_LIMIT
    return Refused(
        "VALIDATION_ERROR", f"Job must be in FAILED status or stuck ({_limit_text(limit)} processing)"
    )


def _limit_text(limit: timedelta) -> str:
    """Return the limit in the source document's form for whole minutes, and in seconds otherwise."""
    seconds = limit.total_seconds()
    if seconds >= 60 and seconds % 60 == 0:
        return f">{seconds / 60:.0f} min"
    return f"more than {seconds:g} second{'' if seconds == 1 else 's'}"
