"""The duties of a worker process: promote what is due, reclaim what was lost, time out what is late, keep the house.

Each has a name, an interval and a health line. Any number of processes may run them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.domain.lanes import ScopeKind
from holdfast.domain.schedule import Schedule
from holdfast.duties.operations import FORGET_EVERY, OPERATIONS_EVERY, Operations, forget
from holdfast.duties.scheduling import Scheduling
from holdfast.duties.stuck import Stuck
from holdfast.engine.engine import BATCH, Engine
from holdfast.engine.ports import Retention
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.duties")

PROMOTE_EVERY = 1.0
PURGE_EVERY = 60.0
SCHEDULES_EVERY = 0.5
LOOK_FOR_PAUSES_EVERY = 1.0
#: Reclaim of lost leases cannot be paused, and the pauses of promotion are the store's own matter.
PAUSABLE = frozenset({"deadlines", "operations", "retention", "schedules", "stuck", "webhooks"})
#: How long the other duties may wait for artefacts to be deleted.
PATIENCE = 5.0


@dataclass(slots=True)
class Duty:
    name: str
    every: float
    run: Callable[[], Awaitable[Any]]
    due: float = 0.0
    runs: int = 0
    failures: int = 0
    last_error: str | None = None


class Duties:
    def __init__(
        self,
        engine: Engine,
        retention: Retention | None = None,
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self._engine = engine
        self._paused: frozenset[str] = frozenset()
        self._holds_due = 0.0
        self._bell = asyncio.Event()
        every = engine.settings.reclaim_every.total_seconds()
        self._promote = Duty("promote", PROMOTE_EVERY, self._promote_due)
        self.all = [
            self._promote,
            Duty("reclaim", every, engine.reclaim),
            Duty("deadlines", min(every, 1.0), engine.time_out),
        ]
        self.add("operations", OPERATIONS_EVERY, Operations(engine).run)
        self.add("requests", FORGET_EVERY, lambda: forget(engine))
        self.add("messages", FORGET_EVERY, engine.forget_messages)
        stuck = Stuck(engine)
        self.all.append(Duty("stuck", stuck.every, stuck.run))
        if schedules:
            self.all.append(Duty("schedules", SCHEDULES_EVERY, Scheduling(engine, schedules).run))
        if retention is not None:
            self.all.append(
                Duty("retention", PURGE_EVERY, lambda: engine.purge(retention, patience=PATIENCE))
            )

    def add(self, name: str, every: float, run: Callable[[], Awaitable[Any]]) -> None:
        """One more."""
        self.all.append(Duty(name, every, run))

    def expect(self, delay: timedelta) -> None:
        """Something will be due in *delay*: do not sleep past it."""
        due = self._engine.clock.monotonic() + delay.total_seconds()
        if due < self._promote.due:
            self._promote.due = due
            self._bell.set()

    async def run(self) -> None:
        """Do each duty when it is due, for ever. A duty that fails is done again; it never ends the others."""
        clock = self._engine.clock
        while True:
            self._bell.clear()
            for duty in self.all:
                if clock.monotonic() >= duty.due:
                    duty.due = clock.monotonic() + duty.every
                    if duty.name in PAUSABLE:
                        await self._look_for_pauses()
                    if duty.name not in self._paused:
                        await self._do(duty)
            pause = max(0.0, min(duty.due for duty in self.all) - clock.monotonic())
            try:
                async with asyncio.timeout(pause):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def _look_for_pauses(self) -> None:
        now = self._engine.clock.monotonic()
        if now < self._holds_due:
            return
        self._holds_due = now + LOOK_FOR_PAUSES_EVERY
        try:
            holds = await self._engine.store.holds()
            self._paused = frozenset(held.scope.name for held in holds if held.scope.kind is ScopeKind.DUTY)
        except StoreError as error:
            log.warning("duties.waits", reason=str(error))

    async def _do(self, duty: Duty) -> None:
        try:
            await duty.run()
            duty.runs, duty.last_error = duty.runs + 1, None
        except StoreError as error:
            duty.failures, duty.last_error = duty.failures + 1, str(error)
            log.warning("duty.failed", duty=duty.name, reason=str(error))
        except Exception:
            duty.failures += 1
            log.exception("duty.failed", duty=duty.name)

    async def _promote_due(self) -> None:
        ahead = await self._engine.store.promote(BATCH)
        if ahead is not None:
            self._promote.due = min(self._promote.due, self._engine.clock.monotonic() + ahead.total_seconds())
