"""A retry by hand (S2, E33): whose picture has failed, is stuck, or waits for an automatic retry, which this one replaces.

All of it is decided by the engine in one guarded move: two clicks, or a click against the scheduler, give one run. Here it is
only told apart why a retry was refused.
"""

from __future__ import annotations

from holdfast import Conflict, Holdfast, JobRow, State
from systems.screenshots.web.problems import Refused


async def retry(app: Holdfast, row: JobRow, *, by: str) -> int:
    """Its place in line; 0: it runs. 400 when the job is not one to retry, 409 when somebody else was first."""
    if row.state is State.COMPLETE:
        raise _not_retryable(app, row)
    running = row.state is State.PROCESSING
    # From an attempt that is stuck though its worker lives. The sweep would do the same a little later.
    taken = running and await app.take_back(await app.stuck(ids=row.id)) == 1
    try:
        return await app.retry(row.id, by=by)
    except Conflict:
        if taken:
            return 0  # the automatic retry that taking it back has brought about was quicker than this one
        if running:
            raise _not_retryable(app, row) from None
        raise


def _not_retryable(app: Holdfast, row: JobRow) -> Refused:
    limit = app.tasks[row.task].policy.stuck_after
    minutes = "30" if limit is None else f"{limit.total_seconds() / 60:g}"
    return Refused("VALIDATION_ERROR", f"Job must be in FAILED status or stuck (>{minutes} min processing)")
