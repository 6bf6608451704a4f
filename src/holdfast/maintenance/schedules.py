"""The maintenance task that enqueues scheduled tasks: one job per tick, however many processes run it.

Every process computes the same id for the job of a tick. If one dies between the enqueue and the record of
the tick, the next one enqueues the same id again, which creates no second job.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from holdfast.engine.engine import Engine
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.engine.tables.holds import holds_in_force
from holdfast.engine.tables.ticks import Tick
from holdfast.errors import Forbidden, PayloadError, Refused
from holdfast.jobs.schedule import Schedule, due
from holdfast.logging import Log
from holdfast.tasks.schedules import jobs_of

log = Log("holdfast.maintenance")

#: The longest pause between two checks, in seconds: a schedule or a clock may have been changed meanwhile.
CHECK_AT_LEAST = 15.0
_NEVER = timedelta(days=36_500)


class Scheduler:
    """Enqueues the due ticks of *schedules*."""

    def __init__(self, engine: Engine, schedules: Mapping[str, Schedule]) -> None:
        self._engine, self._schedules = engine, schedules
        self._check_at = 0.0

    async def run(self) -> None:
        """Enqueue the jobs of all due ticks, by the store's clock, if a check is due."""
        clock = self._engine.clock
        if clock.monotonic() < self._check_at:
            return
        store = self._engine.store
        now, stored = await store.now(), {tick.name: tick for tick in await schedule_ticks.every(store)}
        paused = {held.scope.name for held in await holds_in_force(store) if held.scope.kind == "schedule"}
        ahead = timedelta(seconds=CHECK_AT_LEAST)
        for name, schedule in self._schedules.items():
            if name not in paused:
                ahead = min(ahead, await self._enqueue_due(schedule, stored.get(name), now) - now)
        self._check_at = clock.monotonic() + max(ahead.total_seconds(), 0.0)

    async def _enqueue_due(self, schedule: Schedule, stored: Tick | None, now: datetime) -> datetime:
        """Enqueue the jobs of one schedule's due ticks. Return when its next tick is due."""
        upcoming = schedule.when.next_after(now) or now + _NEVER
        # The stored next tick may belong to an older definition: wait for it only if the definition still
        # agrees.
        if stored is not None and stored.due > now and stored.due == upcoming:
            return upcoming
        task = self._engine.tasks[schedule.task]
        ticks = due(schedule, None if stored is None else stored.last, now)
        ticked = None
        if ticks:
            try:
                await self._engine.enqueue(jobs_of(schedule, task, ticks))
                ticked = ticks[-1]
                log.info("schedule.ticked", schedule=schedule.name, jobs=len(ticks))
            except (Forbidden, PayloadError, Refused) as refused:
                # This tick is skipped, so that the other schedules do not wait for it.
                log.warning("schedule.refused", schedule=schedule.name, reason=str(refused))
        before = None if stored is None else stored.last
        await schedule_ticks.move(
            self._engine.store, schedule.name, before=before, last=now, due=upcoming, ticked=ticked
        )
        return upcoming
