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
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Retention
from holdfast.engine.recovery import BATCH
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.maintenance.operations import FORGET_EVERY, OPERATIONS_EVERY, OperationRunner, forget
from holdfast.maintenance.schedules import Scheduler
from holdfast.maintenance.stuck import StuckSweep
from holdfast.redaction import redact_text

log = Log("holdfast.maintenance")

PURGE_EVERY = 60.0
SCHEDULES_EVERY = 0.5
LOOK_FOR_PAUSES_EVERY = 1.0
#: What the store itself keeps out of line while it is paused; when it is not any more, it is let in at once.
_HOLDS_BACK = frozenset({"delayed", "retries"})
#: Reclaim of lost leases cannot be paused, and the pauses of promotion are the store's own matter.
PAUSABLE = frozenset({"deadlines", "notifiers", "operations", "retention", "schedules", "stuck", "webhooks"})
#: How long the other duties may wait for artifacts to be deleted.
PATIENCE = 5.0


@dataclass(slots=True)
class MaintenanceTask:
    name: str
    every: float
    run: Callable[[], Awaitable[Any]]
    apart: bool = False  #: it may wait for others' code, so it runs in a task of its own beside the rest
    due: float = 0.0
    runs: int = 0
    failures: int = 0
    last_error: str | None = None  #: of the last run, if that failed

    def line(self, *, is_paused: bool) -> str:
        """How it goes, for people."""
        told = f"{self.name}: every {self.every:g} s, done {self.runs} times, failed {self.failures} times"
        if is_paused:
            told += "; paused"
        return told if self.last_error is None else f"{told}; the last time: {redact_text(self.last_error)}"


class Maintenance:
    def __init__(
        self,
        engine: Engine,
        retention: Retention | None = None,
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self._engine = engine
        self._paused: frozenset[str] = frozenset()
        self._holds_due = 0.0
        self._known = False  #: somebody is expected, at the time of the next look for those who are due
        self._bell = asyncio.Event()
        self._apart: dict[str, asyncio.Task[None]] = {}
        every = engine.settings.reclaim_every.total_seconds()
        promote_every = engine.settings.promote_every.total_seconds()
        self._promote = MaintenanceTask("promote", promote_every, self._promote_due)
        self.all = [
            self._promote,
            MaintenanceTask("reclaim", every, engine.reclaim),
            MaintenanceTask(
                "deadlines", engine.settings.look_for_deadlines_every.total_seconds(), engine.time_out
            ),
        ]
        self.add("operations", OPERATIONS_EVERY, OperationRunner(engine).run)
        self.add("requests", FORGET_EVERY, lambda: forget(engine))
        self.add("messages", FORGET_EVERY, engine.forget_messages)
        stuck = StuckSweep(engine)
        self.all.append(MaintenanceTask("stuck", stuck.every, stuck.run))
        if schedules:
            self.all.append(MaintenanceTask("schedules", SCHEDULES_EVERY, Scheduler(engine, schedules).run))
        self.add("retention", PURGE_EVERY, lambda: engine.purge_by_policy(retention, patience=PATIENCE))

    def add(self, name: str, every: float, run: Callable[[], Awaitable[Any]], *, apart: bool = False) -> None:
        """Add a duty. With *apart* it runs beside the others, which do not wait for it."""
        self.all.append(MaintenanceTask(name, every, run, apart))

    def expect(self, delay: timedelta) -> None:
        """Something will be due in *delay*: do not sleep past it."""
        due = self._engine.clock.monotonic() + delay.total_seconds()
        if self._look_by(due):
            self._bell.set()

    def _look_by(self, due: float) -> bool:
        """Look for those who are due by then at the latest; whether that is sooner than it would have been."""
        sooner = due < self._promote.due
        if sooner:
            self._promote.due, self._known = due, True
        return sooner

    async def run(self) -> None:
        """Do each duty when it is due, for ever. A duty that fails is done again; it never ends the others."""
        self._engine.promoters.append(self.expect)
        self._engine.health_lines.append(self.lines)
        try:
            while True:
                self._bell.clear()
                await self._rest(await self.turn())
        finally:
            self._engine.promoters.remove(self.expect)  # another worker of this engine may go on
            self._engine.health_lines.remove(self.lines)
            for task in self._apart.values():
                task.cancel()
            await asyncio.gather(*self._apart.values(), return_exceptions=True)

    def lines(self) -> list[str]:
        return [duty.line(is_paused=duty.name in self._paused) for duty in self.all]

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._bell.wait()
        except TimeoutError:
            pass

    async def turn(self) -> float:
        """Do what is due now, each duty once; in how many seconds the next one is."""
        clock = self._engine.clock
        for duty in self.all:
            if clock.monotonic() >= duty.due:
                duty.due = clock.monotonic() + duty.every
                if duty.name in PAUSABLE:
                    await self._look_for_pauses()
                if duty.name in self._paused:
                    continue
                if duty.apart:
                    self._begin(duty)
                else:
                    await self._do(duty)
        return max(0.0, min(duty.due for duty in self.all) - clock.monotonic())

    async def _look_for_pauses(self) -> None:
        now = self._engine.clock.monotonic()
        if now < self._holds_due:
            return
        self._holds_due = now + LOOK_FOR_PAUSES_EVERY
        try:
            holds = await self._engine.store.holds()
            paused = frozenset(held.scope.name for held in holds if held.scope.kind is ScopeKind.MAINTENANCE)
            if (self._paused - paused) & _HOLDS_BACK:
                self._promote.due = now
            self._paused = paused
        except StoreError as error:
            log.warning("maintenance.retrying", reason=str(error))

    def _begin(self, duty: MaintenanceTask) -> None:
        """Start *duty* in a task of its own, unless its last run still goes on."""
        running = self._apart.get(duty.name)
        if running is None or running.done():
            self._apart[duty.name] = asyncio.create_task(self._do(duty), name=duty.name)

    async def _do(self, duty: MaintenanceTask) -> None:
        try:
            await duty.run()
            duty.runs, duty.last_error = duty.runs + 1, None
        except StoreError as error:
            duty.failures, duty.last_error = duty.failures + 1, str(error)
            log.warning("maintenance.failed", name=duty.name, reason=str(error))
        except Exception as error:
            duty.failures, duty.last_error = duty.failures + 1, f"{type(error).__name__}: {error}"
            log.exception("maintenance.failed", name=duty.name)

    async def _promote_due(self) -> None:
        clock, was_known = self._engine.clock, self._known
        if was_known:
            # Once more: a pause that was not seen yet may keep it out now. Those that were seen tell when they end.
            self._promote.due = min(self._promote.due, clock.monotonic() + LOOK_FOR_PAUSES_EVERY)
        self._known = False
        try:
            ahead = await self._engine.store.promote(BATCH)
        except BaseException:
            self._known |= was_known
            raise
        if ahead is not None:
            self._look_by(clock.monotonic() + ahead.total_seconds())
