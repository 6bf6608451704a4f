"""The maintenance tasks of a process: promote due jobs, reclaim lost ones, time out late ones, purge old ones.

Each has a name, an interval and a health line. Any number of processes may run them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.policies import end_expired
from holdfast.engine.recovery import BATCH
from holdfast.engine.tables.holds import holds_in_force
from holdfast.errors import StoreError
from holdfast.jobs.lanes import ScopeKind
from holdfast.jobs.retention import Retention
from holdfast.jobs.schedule import Schedule
from holdfast.logging import Log
from holdfast.maintenance.operations import FORGET_EVERY, OPERATIONS_EVERY, OperationRunner, forget
from holdfast.maintenance.schedules import Scheduler
from holdfast.maintenance.stuck import StuckSweep
from holdfast.outbox.verbs import forget_published
from holdfast.redaction import redact_text

log = Log("holdfast.maintenance")

PURGE_EVERY = 60.0
SCHEDULES_EVERY = 0.5
END_OVERRIDES_EVERY = 5.0
READ_PAUSES_EVERY = 1.0
#: Pauses of job kinds that the store does not promote meanwhile. When such a pause ends, promotion runs at
#: once.
_PROMOTION_PAUSES = frozenset({"delayed", "retries"})
#: The tasks that can be paused. Reclaiming lost leases cannot be, and the store itself applies pauses of
#: promotion.
PAUSABLE = frozenset(
    {"deadlines", "notifiers", "operations", "retention", "schedules", "statistics", "stuck", "webhooks"}
)
#: How long the other tasks may wait for the deletion of artifacts, in seconds.
DELETE_ARTIFACTS_WITHIN = 5.0


@dataclass(slots=True)
class MaintenanceTask:
    """A named function that runs every *every* seconds, with its statistics."""

    name: str
    every: float
    run: Callable[[], Awaitable[Any]]
    apart: bool = False  #: it may wait for foreign code, so it runs in an asyncio task of its own
    due: float = 0.0
    runs: int = 0
    failures: int = 0
    last_error: str | None = None  #: the error of the last run, if that failed

    def line(self, *, is_paused: bool) -> str:
        """Return its health line."""
        line = f"{self.name}: every {self.every:g} s, done {self.runs} times, failed {self.failures} times"
        if is_paused:
            line += "; paused"
        return line if self.last_error is None else f"{line}; last error: {redact_text(self.last_error)}"


class Maintenance:
    """Runs the maintenance tasks of one process, each when it is due."""

    def __init__(
        self,
        engine: Engine,
        retention: Retention | None = None,
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self._engine = engine
        self._paused: frozenset[str] = frozenset()
        self._holds_due = 0.0
        self._job_expected = False  #: a job is expected to be due when promotion runs next
        self._wakeup = asyncio.Event()
        self._apart: dict[str, asyncio.Task[None]] = {}
        every = engine.settings.reclaim_every.total_seconds()
        promote_every = engine.settings.promote_every.total_seconds()
        self._promote = MaintenanceTask("promote", promote_every, self._promote_due)
        self.all = [
            self._promote,
            MaintenanceTask("reclaim", every, engine.recovery.reclaim),
            MaintenanceTask(
                "deadlines",
                engine.settings.look_for_deadlines_every.total_seconds(),
                engine.recovery.time_out,
            ),
        ]
        self.add("operations", OPERATIONS_EVERY, OperationRunner(engine).run)
        self.add("requests", FORGET_EVERY, lambda: forget(engine))
        self.add("overrides", END_OVERRIDES_EVERY, lambda: end_expired(engine))
        self.add("messages", FORGET_EVERY, lambda: forget_published(engine.store))
        stuck = StuckSweep(engine)
        self.all.append(MaintenanceTask("stuck", stuck.every, stuck.run))
        if schedules:
            self.all.append(MaintenanceTask("schedules", SCHEDULES_EVERY, Scheduler(engine, schedules).run))
        self.add(
            "retention",
            PURGE_EVERY,
            lambda: engine.recovery.purge_by_policy(retention, patience=DELETE_ARTIFACTS_WITHIN),
        )

    def add(self, name: str, every: float, run: Callable[[], Awaitable[Any]], *, apart: bool = False) -> None:
        """Add a task. With *apart* it runs beside the others, which do not wait for it."""
        self.all.append(MaintenanceTask(name, every, run, apart))

    def expect(self, delay: timedelta) -> None:
        """Note that a job will be due in *delay*, so that promotion runs by then."""
        due = self._engine.clock.monotonic() + delay.total_seconds()
        if self._promote_by(due):
            self._wakeup.set()

    def _promote_by(self, due: float) -> bool:
        """Run promotion at the time *due* at the latest. Return whether that is earlier than planned."""
        sooner = due < self._promote.due
        if sooner:
            self._promote.due, self._job_expected = due, True
        return sooner

    async def run(self) -> None:
        """Run each task when it is due, until cancelled.

        A task that fails runs again and never ends the others.
        """
        self._engine.recovery.promoters.append(self.expect)
        self._engine.health_lines.append(self.lines)
        try:
            while True:
                self._wakeup.clear()
                await self._wait(await self.turn())
        finally:
            self._engine.recovery.promoters.remove(self.expect)  # another worker of this engine may go on
            self._engine.health_lines.remove(self.lines)
            for task in self._apart.values():
                task.cancel()
            await asyncio.gather(*self._apart.values(), return_exceptions=True)

    def lines(self) -> list[str]:
        """Return the health line of each task."""
        return [task.line(is_paused=task.name in self._paused) for task in self.all]

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    async def turn(self) -> float:
        """Run each task that is due now, once. Return the seconds until the next one is due."""
        clock = self._engine.clock
        for task in self.all:
            if clock.monotonic() >= task.due:
                task.due = clock.monotonic() + task.every
                if task.name in PAUSABLE:
                    await self._refresh_pauses()
                if task.name in self._paused:
                    continue
                if task.apart:
                    self._start(task)
                else:
                    await self._do(task)
        return max(0.0, min(task.due for task in self.all) - clock.monotonic())

    async def _refresh_pauses(self) -> None:
        now = self._engine.clock.monotonic()
        if now < self._holds_due:
            return
        self._holds_due = now + READ_PAUSES_EVERY
        try:
            holds = await holds_in_force(self._engine.store)
            paused = frozenset(held.scope.name for held in holds if held.scope.kind is ScopeKind.MAINTENANCE)
            if (self._paused - paused) & _PROMOTION_PAUSES:
                self._promote.due = now
            self._paused = paused
        except StoreError as error:
            log.warning("maintenance.retrying", reason=str(error))

    def _start(self, task: MaintenanceTask) -> None:
        """Start *task* in an asyncio task of its own, unless its last run has not ended."""
        running = self._apart.get(task.name)
        if running is None or running.done():
            self._apart[task.name] = asyncio.create_task(self._do(task), name=task.name)

    async def _do(self, task: MaintenanceTask) -> None:
        try:
            await task.run()
            task.runs, task.last_error = task.runs + 1, None
        except StoreError as error:
            task.failures, task.last_error = task.failures + 1, str(error)
            log.warning("maintenance.failed", name=task.name, reason=str(error))
        except Exception as error:
            task.failures, task.last_error = task.failures + 1, f"{type(error).__name__}: {error}"
            log.exception("maintenance.failed", name=task.name)

    async def _promote_due(self) -> None:
        clock, was_expected = self._engine.clock, self._job_expected
        if was_expected:
            # Run once more soon: a pause that this process has not read yet may hold the job back now. (When
            # a pause that it has read ends, promotion runs at once.)
            self._promote.due = min(self._promote.due, clock.monotonic() + READ_PAUSES_EVERY)
        self._job_expected = False
        try:
            ahead = await self._engine.store.promote(BATCH)
        except BaseException:
            self._job_expected |= was_expected
            raise
        if ahead is not None:
            self._promote_by(clock.monotonic() + ahead.total_seconds())
