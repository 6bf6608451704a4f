"""The part of the port that `holdfast.engine.lane_store` describes: holds, dependencies, limits, fair lines, schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import JobBatch, Session
from holdfast.domain.lanes import Cause, Dependency, Held, Scope
from holdfast.domain.moves import Kind
from holdfast.engine.lane_store import Charge, DependencyReport, DependencyState, QuotaRefusal, Tick
from holdfast.engine.ports import Clock
from holdfast.errors import StoreError
from holdfast.stores.postgres import dependencies, fairness, holds, limits, schedules
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.fairness import Stager
from holdfast.stores.postgres.runner import UNDONE
from holdfast.stores.postgres.writes import Writes

#: How often what nobody needs any more is forgotten.
_FORGET_EVERY = 300.0


class Admission(Writes):
    def __init__(self, lines: Connections, clock: Clock) -> None:
        super().__init__(lines, clock)
        self._stager = Stager(self._lanes, clock)
        self._forget_at = 0.0

    async def now(self) -> datetime:
        now: datetime = await self._value("SELECT holdfast.clock()")
        return now

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        token = await self._token() if cause is Cause.PAUSE else None
        await self._write(
            "people",
            lambda move: holds.hold(move, scope, cause, span, reason, by, token),
            atomic=token is not None,
        )

    async def resume(self, scope: Scope, cause: Cause, *, by: str) -> bool:
        ended = await self._write("people", lambda move: holds.resume(move, scope, cause, by))
        self._freed()
        self._notifier.notify()
        return ended

    def _freed(self) -> None:
        """Something is not held any more: claims of this process look for it."""

    async def holds(self) -> list[Held]:
        return await self._look(holds.holds)

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        return await self._runner.run("people", lambda db: dependencies.report(db, session, reports))

    async def dependency_states(self) -> list[DependencyState]:
        return await self._look(dependencies.dependency_states)

    async def swap_breaker(
        self,
        dependency: Dependency,
        breaker: Breaker,
        *,
        holds: bool,
        kind: Kind | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> bool:
        swapped = await self._write(
            "people",
            lambda move: dependencies.swap_breaker(move, dependency, breaker, holds, kind, meta),
            atomic=kind is not None,
        )
        if swapped and not holds:
            self._freed()
            self._notifier.notify()
        return swapped

    # -- limits -----------------------------------------------------------------------------------------------------
    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        return await self._runner.run("enqueue", lambda db: limits.charge(db, charges), again=UNDONE)

    async def usage(self, scope: str) -> dict[str, int]:
        return await self._look(lambda db: limits.usage(db, scope))

    async def weigh(self, weights: Mapping[str, float]) -> None:
        await self._runner.run("people", lambda db: fairness.weigh(db, weights))

    # -- schedules --------------------------------------------------------------------------------------------------
    async def ticks(self) -> list[Tick]:
        return await self._look(schedules.ticks)

    async def tick(
        self,
        name: str,
        *,
        before: datetime | None,
        last: datetime,
        due: datetime,
        ticked: datetime | None = None,
    ) -> bool:
        return await self._runner.run(
            "people", lambda db: schedules.tick(db, name, before, last, due, ticked)
        )

    async def forget_schedule(self, name: str) -> bool:
        return await self._runner.run("people", lambda db: schedules.forget_schedule(db, name))

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def _let_in(self, batches: Sequence[JobBatch]) -> None:
        """Tell of jobs that were enqueued, and place those of fair lanes. They are stored: somebody else will place them if we
        cannot."""
        if any(batch.spec.lane.fair for batch in batches):
            try:
                await self._runner.run("enqueue", lambda db: self._stager.after_enqueue(db, batches))
            except StoreError:
                pass
        self._notifier.notify()

    # -- keeping the house ------------------------------------------------------------------------------------------
    async def _keep_lanes(self, connection: asyncpg.Connection[Any]) -> None:
        """Place who entered fair lines by ways that place nobody; now and then forget what nobody needs."""
        if await self._stager.in_maintenance(connection):
            self._notifier.notify()
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + _FORGET_EVERY
            await fairness.forget_flows(connection)
            await dependencies.forget_reports(connection)
            await holds.forget_ended(connection)
            await limits.forget_unused(connection)
