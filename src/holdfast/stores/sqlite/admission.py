"""Lanes: holds, dependencies, limits and weights, by the contract of `holdfast.engine.lane_store`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.engine.lane_store import (
    REPORT_COUNTS_FOR,
    Charge,
    DependencyReport,
    DependencyState,
    QuotaRefusal,
)
from holdfast.engine.tables import dependencies
from holdfast.jobs.job import Lane, Session
from holdfast.jobs.lanes import Cause, Dependency, Scope
from holdfast.jobs.machine import Clock
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sqlite import fairness, holds, limits
from holdfast.stores.sqlite.claims import PriorityTurns
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.move import SQL, Move, RunsMoves
from holdfast.stores.sqlite.phases import DEFERRED, READY
from holdfast.stores.sqlite.times import span

_COUNTS_FOR = span(REPORT_COUNTS_FOR)


class LaneControls:
    """Holds, breakers and limits: the part of `LaneStore` that needs no jobs, on a file or in RAM."""

    def __init__(self, database: RunsMoves, clock: Clock) -> None:
        self._database, self._reports = database, dependencies.Reports(clock)

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        await self._database.write(lambda move: holds.hold(move, scope, cause, span, reason, by))

    async def freed(self) -> None:
        self._database.notifier.notify()

    # -- dependencies -----------------------------------------------------------------------------------------------
    async def report(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyState]:
        news = self._reports.news(session, reports)

        def write(move: Move) -> None:
            # Those that count no more are deleted too: their workers are gone.
            move.connection.execute("DELETE FROM holdfast_report WHERE at < ?", (move.now - 2 * _COUNTS_FOR,))
            run_to_end(self._reports.write(move.transaction, session, news))

        if news:
            await self._database.write(write)
            self._reports.remember(session, news)
        only = {one.dependency for one in reports}
        return self._database.peek(lambda move: _states(move, only))

    # -- limits -----------------------------------------------------------------------------------------------------
    async def charge(self, charges: Sequence[Sequence[Charge]]) -> list[QuotaRefusal | None]:
        return await self._database.write(lambda move: limits.charge(move, charges))


def _states(move: Move, only: Collection[Dependency] | None = None) -> list[DependencyState]:
    return run_to_end(dependencies.read_states(move.transaction, only))


class Lanes(LaneControls):
    def __init__(self, database: Database, turns: PriorityTurns) -> None:
        super().__init__(database, database.clock)
        self._file, self._turns = database, turns

    # -- all lanes --------------------------------------------------------------------------------------------------
    async def all(self) -> set[Lane]:
        return set(self._numbered().values())

    async def waiting(self) -> set[Lane]:
        rows = self._file.rows(SQL["waiting_lanes"])
        return {Lane(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows}

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        only = None if lanes is None else frozenset(lanes)
        known = {n: lane for n, lane in self._numbered().items() if only is None or lane in only}
        depths, listed = dict.fromkeys(known.values(), 0), ", ".join(map(str, known))
        for phase in (READY, DEFERRED):  # by name, so that each count walks the index of its phase
            for number, count in self._file.rows(
                f"SELECT lane, count(*) FROM holdfast_job WHERE phase = {phase} AND lane IN ({listed}) GROUP BY lane"
            ):
                depths[known[number]] += count
        return depths

    def _numbered(self) -> dict[int, Lane]:
        rows = self._file.rows("SELECT id, queue, task, dependency, shard, fair FROM holdfast_lane")
        return {
            number: Lane(queue, task, dependency, shard, bool(fair))
            for number, queue, task, dependency, shard, fair in rows
        }

    # -- claiming ---------------------------------------------------------------------------------------------------
    async def freed(self) -> None:
        if self._turns.crowds:  # in a write, where claims are made
            await self._file.write(lambda _: self._turns.crowds.wake())
        await super().freed()

    async def weigh(self, weights: Mapping[str, float]) -> None:
        await self._file.write(lambda move: fairness.weigh(move, weights))

    def share(self, priorities: Mapping[str, int]) -> None:
        self._turns.levels.weights = dict(priorities)
