"""A retry by hand (S2, E33): for a picture that has failed, is stuck, or waits for an automatic retry, which this one replaces.

The engine decides it in one guarded move, also where a stuck job is taken from its worker: two clicks, or a click against the
scheduler, give one run. This module only explains a refusal.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast import Conflict, Holdfast, JobRow, State
from holdfast.logs import Log
from systems.screenshots.web.problems import Refused

log = Log("screenshots.retrying")

_DEFAULT_LIMIT = timedelta(minutes=30)


async def retry(app: Holdfast, row: JobRow, *, by: str, priority: int | None) -> int:
    """Retry the job that was read as *row* and return its queue position. With a *priority* the job has that one from now on.

    Raises `Refused` with 400 when the job is not one to retry, and with 409 when it changed after it was read.
    """
    if row.state is State.COMPLETE:
        raise _not_retryable(app, row)
    try:
        place = await app.retry(row.id, by=by, priority=priority)
    except Conflict:
        if await _is_unchanged(app, row):
            raise _not_retryable(app, row) from None
        raise
    log.info(
        "job.retried", job_id=row.id, by=by, state_before=row.state.value, position=place, priority=priority
    )
    if row.state is State.QUEUED:
        log.info("job.retry_replaced", job_id=row.id, by=by, due_before=row.run_at.isoformat())
    return place


async def _is_unchanged(app: Holdfast, row: JobRow) -> bool:
    """Return whether the job is still as *row* says, or complete: then the rule refused it, not a lost race."""
    now = await app.job(row.id)
    return now.state is State.COMPLETE or _moves(now) == _moves(row)


def _moves(row: JobRow) -> tuple[State, int, int, int]:
    return row.state, row.generation, row.epoch, row.manual_retry_count


def _not_retryable(app: Holdfast, row: JobRow) -> Refused:
    limit = app.tasks[row.task].policy.stuck_after or _DEFAULT_LIMIT
    return Refused(
        "VALIDATION_ERROR", f"Job must be in FAILED status or stuck ({_longer_than(limit)} processing)"
    )


def _longer_than(limit: timedelta) -> str:
    """Return the limit as the source writes it for whole minutes, and in seconds otherwise."""
    seconds = limit.total_seconds()
    if seconds >= 60 and seconds % 60 == 0:
        return f">{seconds / 60:.0f} min"
    return f"more than {seconds:g} second{'' if seconds == 1 else 's'}"
