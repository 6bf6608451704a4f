"""The duty that enqueues scheduled tasks: one job a tick, with any number of processes on it.

The job of a tick has the same id wherever it is made, so that a process which dies between the enqueue and the note of it
costs nothing: the next one enqueues the same job again, which is there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from holdfast.domain.schedule import Schedule, due
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Tick
from holdfast.engine.schedules import jobs_of
from holdfast.errors import Forbidden, InsufficientCredits, PayloadError, QuotaExceeded
from holdfast.logs import Log

log = Log("holdfast.maintenance")

#: However far away the next tick is: others may have moved it, or a clock may have been set.
LOOK_AT_LEAST = 15.0
_NEVER = timedelta(days=36_500)


class Scheduler:
    def __init__(self, engine: Engine, schedules: Mapping[str, Schedule]) -> None:
        self._engine, self._schedules = engine, schedules
        self._look_at = 0.0

    async def run(self) -> None:
        """Enqueue what has ticked. The store's clock decides."""
        clock = self._engine.clock
        if clock.monotonic() < self._look_at:
            return
        store = self._engine.store
        now, kept = await store.now(), {tick.name: tick for tick in await store.ticks()}
        paused = {held.scope.name for held in await store.holds() if held.scope.kind == "schedule"}
        ahead = timedelta(seconds=LOOK_AT_LEAST)
        for name, schedule in self._schedules.items():
            if name not in paused:
                ahead = min(ahead, await self._see_to(schedule, kept.get(name), now) - now)
        self._look_at = clock.monotonic() + max(ahead.total_seconds(), 0.0)

    async def _see_to(self, schedule: Schedule, kept: Tick | None, now: datetime) -> datetime:
        """Enqueue the ticks of one schedule that came; when the next one does."""
        upcoming = schedule.when.next_after(now) or now + _NEVER
        # What it was to be next may be of an older definition: only where it still agrees is it waited for.
        if kept is not None and kept.due > now and kept.due == upcoming:
            return upcoming
        task = self._engine.tasks[schedule.task]
        ticks = due(schedule, None if kept is None else kept.last, now)
        ticked = None
        if ticks:
            try:
                await self._engine.enqueue(jobs_of(schedule, task, ticks))
                ticked = ticks[-1]
                log.info("schedule.ticked", schedule=schedule.name, jobs=len(ticks))
            except (Forbidden, InsufficientCredits, PayloadError, QuotaExceeded) as refused:
                # It passes: the others must not wait for it.
                log.warning("schedule.refused", schedule=schedule.name, reason=str(refused))
        before = None if kept is None else kept.last
        await self._engine.store.tick(schedule.name, before=before, last=now, due=upcoming, ticked=ticked)
        return upcoming
