"""`app.schedules`: when schedules tick; run, pause, resume and forget them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime

from holdfast.engine.engine import Engine
from holdfast.engine.namespace import Namespace
from holdfast.engine.queues import Queues
from holdfast.engine.scopes import find_scope
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.engine.tables.holds import end_pause, holds_in_force
from holdfast.engine.tables.ticks import Tick
from holdfast.errors import UsageError
from holdfast.jobs.job import JobId
from holdfast.jobs.lanes import Held, ScopeKind
from holdfast.jobs.schedule import Cron, Schedule, describe
from holdfast.tasks.schedules import job_now
from holdfast.tasks.task import checked_id
from holdfast.values.duration import Duration
from holdfast.values.suggest import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule as people see it. Without its declaration (*task* None), only what the store knows is shown."""

    name: str
    task: str | None
    when: str | None
    zone: str | None
    last: datetime | None  #: the newest tick for which a job was enqueued
    next: datetime | None
    held: Held | None  #: its pause


class Schedules(Namespace):
    """Tasks that are enqueued by the clock."""

    async def list(self) -> builtins.list[ScheduleRow]:
        """Return the schedules that this app declares and those that any worker has ever served, by name."""
        engine = await self._engine()
        store, now = engine.store, await engine.store.now()
        ticks = {tick.name: tick for tick in await schedule_ticks.every(store)}
        held = {
            one.scope.name: one for one in await holds_in_force(store) if one.scope.kind is ScopeKind.SCHEDULE
        }
        return [
            _row(name, engine.schedules.get(name), ticks.get(name), held.get(name), now)
            for name in sorted(ticks.keys() | engine.schedules)
        ]

    async def run(self, name: str, *, job_id: str | None = None) -> JobId:
        """Enqueue the scheduled job once, now, and return its id. The ticks of the schedule stay as they are.

        *job_id* is a UUID; a job whose id is known is not stored twice. Raises `UsageError` when this app declares no
        schedule of that name.
        """
        engine = await self._engine()
        schedule = _declared(engine, name)
        known = engine.ids.job_id() if job_id is None else checked_id(job_id)
        job = job_now(schedule, engine.tasks[schedule.task], known)
        [answer] = await engine.enqueue([job])
        return answer.id

    async def pause(
        self, name: str, *, duration: Duration | None = None, reason: str = "", by: str = "api"
    ) -> None:
        """Enqueue no more jobs of this schedule, until `resume` or for *duration*. Then its rule for missed ticks applies."""
        await Queues(self._source).pause(
            name, kind=ScopeKind.SCHEDULE, duration=duration, reason=reason, by=by
        )

    async def resume(self, name: str, *, by: str = "api") -> bool:
        """End the pause of this schedule, and return whether there was one."""
        return await Queues(self._source).resume(name, kind=ScopeKind.SCHEDULE, by=by)

    async def forget(self, name: str) -> None:
        """Delete what the store knows of a schedule. One that code still declares starts again with its next tick.

        Raises `UsageError`, with similar names, when there is no such schedule.
        """
        engine = await self._engine()
        scope = await find_scope(engine, ScopeKind.SCHEDULE, name)
        await end_pause(engine.store, scope, by="forget")
        await schedule_ticks.forget(engine.store, name)


def _declared(engine: Engine, name: str) -> Schedule:
    found = engine.schedules.get(name)
    if found is None:
        raise UsageError(f"this app declares no schedule {name!r:.60}; {suggest(name, engine.schedules)}")
    return found


def _row(
    name: str, declared: Schedule | None, tick: Tick | None, held: Held | None, now: datetime
) -> ScheduleRow:
    when = None if declared is None else declared.when
    upcoming = tick.due if tick else when.next_after(now) if when else None
    return ScheduleRow(
        name=name,
        task=None if declared is None else declared.task,
        when=when.expression if isinstance(when, Cron) else None if when is None else describe(when),
        zone=when.zone if isinstance(when, Cron) else None,
        last=None if tick is None else tick.ticked,
        next=upcoming,
        held=held,
    )
