"""The duties of a worker process: promote what is due, reclaim what was lost, time out what is late, keep the house.

Each has a name, an interval and a health line. Any number of processes may run them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.engine.engine import BATCH, Engine
from holdfast.engine.log import Log
from holdfast.engine.ports import Retention
from holdfast.errors import StoreError

log = Log("holdfast.duties")

PROMOTE_EVERY = 1.0
PURGE_EVERY = 60.0


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
    def __init__(self, engine: Engine, retention: Retention | None = None) -> None:
        self._engine = engine
        self._bell = asyncio.Event()
        every = engine.settings.reclaim_every.total_seconds()
        self._promote = Duty("promote", PROMOTE_EVERY, self._promote_due)
        self.all = [
            self._promote,
            Duty("reclaim", every, engine.reclaim),
            Duty("deadlines", min(every, 1.0), engine.time_out),
        ]
        if retention is not None:
            self.all.append(Duty("retention", PURGE_EVERY, lambda: engine.purge(retention)))

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
                    await self._do(duty)
            pause = max(0.0, min(duty.due for duty in self.all) - clock.monotonic())
            try:
                async with asyncio.timeout(pause):
                    await self._bell.wait()
            except TimeoutError:
                continue

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
