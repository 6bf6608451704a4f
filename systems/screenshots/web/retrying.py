"""A retry by hand (S2, E33): whose picture has failed, is stuck, or waits for an automatic retry, which this one replaces.

All of it is decided by the engine in one guarded move, also where a stuck job is taken from its worker: two clicks, or a click
against the scheduler, give one run. Here it is only told apart why a retry was refused.
"""

from __future__ import annotations

from holdfast import Conflict, Holdfast, JobRow, State
from holdfast.logs import Log
from systems.screenshots.web.problems import Refused

log = Log("screenshots.retrying")


async def retry(app: Holdfast, row: JobRow, *, by: str) -> int:
    """Its place in line. 400 when the job is not one to retry, 409 when somebody else was first."""
    if row.state is State.COMPLETE:
        raise _not_retryable(app, row)
    try:
        place = await app.retry(row.id, by=by)
    except Conflict:
        if row.state is State.PROCESSING and await _still_runs(app, row):
            raise _not_retryable(app, row) from None
        raise
    log.info("retry.manual", job_id=row.id, by=by, was=row.state.value, place=place)
    if row.state is State.QUEUED:
        log.info("retry.replaced", job_id=row.id, by=by, was_due=row.run_at.isoformat())
    return place


async def _still_runs(app: Holdfast, row: JobRow) -> bool:
    """Whether it is the same attempt as before: then it was refused because that is not stuck, and not by a lost race."""
    now = await app.job(row.id)
    return (now.state, now.epoch) == (State.PROCESSING, row.epoch)


def _not_retryable(app: Holdfast, row: JobRow) -> Refused:
    limit = app.tasks[row.task].policy.stuck_after
    minutes = "30" if limit is None else f"{limit.total_seconds() / 60:g}"
    return Refused("VALIDATION_ERROR", f"Job must be in FAILED status or stuck (>{minutes} min processing)")
