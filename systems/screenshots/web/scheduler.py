"""What moves jobs by itself, how often at the latest, and what of it is paused (S4)."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from holdfast import Holdfast
from systems.screenshots.settings import Settings

#: As the source document names them → the engine's duty.
TYPES = {"STUCK_JOBS": "stuck", "FAILED_JOBS": "retries", "DELAYED_JOBS": "delayed"}
_MOST_STUCK = 100


async def scheduler_status(app: Holdfast, settings: Settings) -> dict[str, Any]:
    """*running*: somebody is there to do it. *overdue*: stuck attempts that should have been taken back by now, up to 100."""
    holds = {held.scope.name: held for held in await app.holds() if held.scope.kind == "duty"}
    engine, late = await app.engine(), timedelta(seconds=settings.stuck_jobs_every_sec)
    limits = {task: most + late for task, most in engine.stuck_limits("retry").items()}
    overdue = await engine.store.stuck(limits, _MOST_STUCK) if limits else []
    every = {
        "STUCK_JOBS": settings.stuck_jobs_every_sec,
        "FAILED_JOBS": settings.failed_jobs_every_sec,
        "DELAYED_JOBS": settings.delayed_jobs_every_sec,
    }
    types = []
    for name, duty in TYPES.items():
        held = holds.get(duty)
        until = None if held is None or held.until is None else held.until.astimezone(UTC).isoformat()
        paused = {"paused": held is not None, "resumesAt": until, "by": None if held is None else held.by}
        types.append({"type": name, "everySeconds": every[name], **paused})
    return {"running": bool(await app.workers()), "overdue": len(overdue), "types": types}
