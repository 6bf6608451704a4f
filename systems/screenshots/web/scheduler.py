"""The status of automatic retries, delayed jobs and stuck jobs: intervals, batches and pauses (S4)."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from holdfast import Holdfast
from systems.screenshots.records.books import TYPES as PICTURES
from systems.screenshots.settings import Settings

#: The source document's names, and the engine's maintenance task for each.
TYPES = {"STUCK_JOBS": "stuck", "FAILED_JOBS": "retries", "DELAYED_JOBS": "delayed"}


async def scheduler_status(app: Holdfast, settings: Settings) -> dict[str, Any]:
    """Return the scheduler's status.

    `running` says whether a worker runs. `overdue` is the number of stuck attempts that should have been
    reclaimed by now. `late` says whether a job has been due for longer than the interval without becoming
    claimable.
    """
    holds = {hold.scope.name: hold for hold in await app.queues.holds() if hold.scope.kind == "maintenance"}
    every = {
        "STUCK_JOBS": settings.stuck_jobs_every_sec,
        "FAILED_JOBS": settings.failed_jobs_every_sec,
        "DELAYED_JOBS": settings.delayed_jobs_every_sec,
    }
    oldest_due = 0.0 if holds.keys() & {"retries", "delayed"} else await _due_since(app)
    types = []
    for name, maintenance in TYPES.items():
        hold = holds.get(maintenance)
        until = None if hold is None or hold.until is None else hold.until.astimezone(UTC).isoformat()
        paused = {"paused": hold is not None, "resumesAt": until, "by": None if hold is None else hold.by}
        is_sweep = name == "STUCK_JOBS"
        more = {"batch": settings.stuck_jobs_batch} if is_sweep else {"late": oldest_due > every[name]}
        types.append({"type": name, "everySeconds": every[name], **more, **paused})
    overdue = await _overdue(app, settings)
    return {"running": bool(await app.queues.workers()), "overdue": overdue, "types": types}


async def _due_since(app: Holdfast) -> float:
    """Return for how many seconds the oldest due job has not become claimable."""
    [seen] = [check.seen for check in (await app.health()).checks if check.name == "maintenance"]
    return float(seen)


async def _overdue(app: Holdfast, settings: Settings) -> int:
    """Return how many attempts have been stuck for a whole interval of the sweep; up to 100 of each type."""
    late, found = timedelta(seconds=settings.stuck_jobs_every_sec), 0
    for name in PICTURES:
        policy = app.tasks[name].policy
        if policy.stuck_after is not None and policy.stuck_action == "retry":
            found += len(await app.jobs.stuck(task=name, longer_than=policy.stuck_after + late))
    return found
