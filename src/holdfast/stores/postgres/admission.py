"""Lanes: holds, dependencies, limits and fair lanes, by the contract of `holdfast.engine.lane_store`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.engine.lane_store import (
    REPORT_COUNTS_FOR,
    Charge,
    DependencyReport,
    DependencyState,
    QuotaRefusal,
)
from holdfast.engine.tables import dependencies
from holdfast.jobs.job import Lane, Session
from holdfast.jobs.lanes import Cause, Scope
from holdfast.stores.postgres import fairness, holds, limits
from holdfast.stores.postgres.claims import Claims
from holdfast.stores.postgres.database import UNDONE, Database
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.fairness import Stager
from holdfast.stores.postgres.sessions import forget_reports

#: How often, in seconds, what is not needed any more is deleted.
_FORGET_EVERY = 300.0


class Lanes:
    def __init__(self, database: Database, claims: Claims, stager: Stager) -> None:
        self._database, self._claims, self._stager = database, claims, stager
        self._reports, self._forget_at = dependencies.Reports(database.clock), 0.0

    # -- all lanes --------------------------------------------------------------------------------------------------
    async def all(self) -> set[Lane]:
        return set((await self._numbered()).values())

    async def waiting(self) -> set[Lane]:
        return {Lane(*row) for row in await self._database.rows(SQL["waiting_lanes"])}

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        only = None if lanes is None else frozenset(lanes)
        known = {n: lane for n, lane in (await self._numbered()).items() if only is None or lane in only}
        depths = dict.fromkeys(known.values(), 0)
        rows = await self._database.rows(
            """SELECT lane, count(*) FROM holdfast.ready WHERE lane = ANY ($1::int[]) GROUP BY lane
               UNION ALL SELECT lane, count(*) FROM holdfast.deferred WHERE lane = ANY ($1::int[]) GROUP BY lane""",
            list(known),
        )
        for number, count in rows:
            depths[known[number]] += count
        return depths

    async def _numbered(self) -> dict[int, Lane]:
        rows = await self._database.rows("SELECT id, queue, task, dependency, shard, fair FROM holdfast.lane")
        self._database.lanes.learn(rows)
        return {number: Lane(*lane) for number, *lane in rows}

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        token = await self._database.token() if cause is Cause.PAUSE else None
        await self._database.write(
            "people",
            lambda move: holds.hold(move, scope, cause, span, reason, by, token),
            atomic=token is not None,
        )

    async def freed(self) -> None:
        self._claims.crowds.wake()
        self._database.notifier.notify()

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        if not reports:
            return []
        only, news = {one.dependency for one in reports}, self._reports.news(session, reports)
        if not news:
            return await self._database.transact(
                lambda transaction: dependencies.read_states(transaction, only), reads=True
            )
        columns = map(list, zip(*((*one.dependency, *one[1:]) for one in reports), strict=True))
        rows = await self._database.run(
            "people", lambda db: db.fetch(SQL["report"], session.id, REPORT_COUNTS_FOR, *columns)
        )
        self._reports.remember(session, reports)
        return [dependencies.state_of(row) for row in rows]

    # -- limits -----------------------------------------------------------------------------------------------------
    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        return await self._database.run("enqueue", lambda db: limits.charge(db, charges), again=UNDONE)

    async def weigh(self, weights: Mapping[str, float]) -> None:
        await self._database.run("people", lambda db: fairness.weigh(db, weights))

    def share(self, priorities: Mapping[str, int]) -> None:
        self._claims.share(priorities)

    # -- maintenance ------------------------------------------------------------------------------------------------
    async def maintain(self, connection: asyncpg.Connection[Any]) -> None:
        """Place jobs that entered fair lanes unplaced, and now and then delete what is not needed any more."""
        if await self._stager.in_maintenance(connection):
            self._database.notifier.notify()
        if self._database.clock.monotonic() >= self._forget_at:
            self._forget_at = self._database.clock.monotonic() + _FORGET_EVERY
            await fairness.forget_flows(connection)
            await forget_reports(connection)
            await holds.forget_ended(connection)
            await limits.forget_unused(connection)
