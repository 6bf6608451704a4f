"""Find and reclaim attempts that run too long although their worker is alive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.errors import UnknownTask
from holdfast.jobs.job import JobFilter, StuckJob
from holdfast.values.duration import format_duration
from holdfast.values.validation import several, whole


async def find_stuck(
    engine: Engine, where: JobFilter, *, longer_than: timedelta | None, limit: int
) -> list[StuckJob]:
    """Return stuck attempts, oldest first; see `Jobs.stuck`."""
    whole("limit", limit, 1, BATCH)
    for task in where.tasks:
        if task not in engine.tasks:
            raise UnknownTask(task[:100], engine.tasks)
    limits = (
        engine.recovery.stuck_limits() if longer_than is None else dict.fromkeys(engine.tasks, longer_than)
    )
    wanted = {task: most for task, most in limits.items() if not where.tasks or task in where.tasks}
    if not wanted:
        return []
    found = await engine.store.stuck(wanted, limit, owner=where.owner, ids=where.ids or None)
    return [StuckJob(attempt, wanted[attempt.lane.task]) for attempt in found]


async def reclaim_stuck(engine: Engine, jobs: Sequence[StuckJob], *, by: str) -> int:
    """Take stuck jobs from their workers; see `Jobs.reclaim`."""
    several("jobs", jobs, StuckJob, "what app.jobs.stuck() returned")
    unknown = [job.task for job in jobs if job.task not in engine.tasks]
    if unknown:
        raise UnknownTask(unknown[0], engine.tasks)
    limits = {job.task: job.longer_than for job in jobs}
    return await engine.recovery.reclaim_stuck([job.found for job in jobs], limits, by=by) if jobs else 0


def stuck_view(one: StuckJob) -> dict[str, Any]:
    """Return the job as the API and the command line show it."""
    return {
        "id": one.id,
        "task": one.task,
        "queue": one.queue,
        "attempt": one.attempt,
        "max_attempts": one.max_attempts,
        "worker": one.worker,
        "epoch": one.epoch,
        "longer_than": format_duration(one.longer_than),
    }
