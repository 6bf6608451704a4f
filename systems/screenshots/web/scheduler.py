"""What moves jobs by itself, how often, how many at a time, and what of it is paused (S4)."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from holdfast import Holdfast
from systems.screenshots.records.following import TYPES as PICTURES
from systems.screenshots.settings import Settings

#: As the source document names them → the engine's duty.
TYPES = {"STUCK_JOBS": "stuck", "FAILED_JOBS": "retries", "DELAYED_JOBS": "delayed"}


async def scheduler_status(app: Holdfast, settings: Settings) -> dict[str, Any]:
    """*running*: somebody is there to do it. *overdue*: stuck attempts that should have been reclaimed by now. *late*: a job has
    been due for longer than the interval, and nobody has let it into line."""
    holds = {held.scope.name: held for held in await app.holds() if held.scope.kind == "maintenance"}
    every = {
        "STUCK_JOBS": settings.stuck_jobs_every_sec,
        "FAILED_JOBS": settings.failed_jobs_every_sec,
        "DELAYED_JOBS": settings.delayed_jobs_every_sec,
    }
    waits = 0.0 if holds.keys() & {"retries", "delayed"} else await _due_since(app)
    types = []
    for name, duty in TYPES.items():
        held = holds.get(duty)
        until = None if held is None or held.until is None else held.until.astimezone(UTC).isoformat()
        paused = {"paused": held is not None, "resumesAt": until, "by": None if held is None else held.by}
        sweeps = name == "STUCK_JOBS"
        more = {"batch": settings.stuck_jobs_batch} if sweeps else {"late": waits > every[name]}
        types.append({"type": name, "everySeconds": every[name], **more, **paused})
    overdue = await _overdue(app, settings)
    return {"running": bool(await app.workers()), "overdue": overdue, "types": types}


async def _due_since(app: Holdfast) -> float:
    """For how many seconds the first of those that are not in line has been due."""
    [seen] = [check.seen for check in (await app.health()).checks if check.name == "maintenance"]
    return float(seen)


async def _overdue(app: Holdfast, settings: Settings) -> int:
    """How many attempts are stuck for longer than the sweep lets them, by one interval; up to 100 of each type."""
    late, found = timedelta(seconds=settings.stuck_jobs_every_sec), 0
    for name in PICTURES:
        policy = app.tasks[name].policy
        if policy.stuck_after is not None and policy.stuck_action == "retry":
            found += len(await app.stuck(task=name, longer_than=policy.stuck_after + late))
    return found
