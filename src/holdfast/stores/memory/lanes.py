"""Lanes. `holdfast.engine.lane_store` has the contract. Holds, breakers and limits are rows, as on SQLite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import Lane, Lease
from holdfast.jobs.lanes import Cause, Scope
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import Use
from holdfast.stores.memory.database import Database
from holdfast.stores.memory.intake import ready_jobs
from holdfast.stores.sqlite import holds, limits
from holdfast.stores.sqlite.admission import LaneControls


class Lanes(LaneControls):
    def __init__(self, database: Database) -> None:
        super().__init__(database, database.tables.clock)
        self._memory, self._tables = database, database.tables
        self._slots: dict[str, set[Lease]] = defaultdict(set)
        self._tables.paused = self._paused

    # -- all lanes --------------------------------------------------------------------------------------------------
    async def all(self) -> set[Lane]:
        return set(self._tables.lanes)

    async def waiting(self) -> set[Lane]:
        return {job.lane for job in ready_jobs(self._tables, self._tables.clock.now())}

    async def depths(self, lanes: Collection[Lane] | None = None) -> dict[Lane, int]:
        depths = {lane: 0 for lane in self._tables.lanes if lanes is None or lane in lanes}
        for job in self._tables.jobs.values():
            if job.state is State.QUEUED and job.lane in depths:
                depths[job.lane] += 1
        return depths

    # -- holding ----------------------------------------------------------------------------------------------------
    async def hold(self, scope: Scope, cause: Cause, *, span: timedelta | None, reason: str, by: str) -> None:
        ready_jobs(self._tables, self._tables.clock.now())  # a job that is due now is not held back any more
        await super().hold(scope, cause, span=span, reason=reason, by=by)

    def _paused(self) -> Collection[str]:
        if not self._memory.is_open:
            return ()
        sql = "SELECT name FROM holdfast_hold WHERE kind = 'maintenance' AND (until IS NULL OR until > ?)"
        return {name for (name,) in self._memory.peek(lambda move: move.rows(sql, move.now))}

    # -- limits -----------------------------------------------------------------------------------------------------
    def room(self, caps: Sequence[Cap], limit: int) -> int:
        """Return how many of *limit* may be claimed under these caps."""
        for cap in caps:
            if cap.concurrency is not None:
                slots = self._slots[cap.scope]
                slots -= {lease for lease in slots if not self._is_current(lease)}
                limit = min(limit, cap.concurrency - len(slots))
        rates = _rates(caps)
        return self._memory.peek(lambda move: limits.room(move, rates, limit)) if rates else max(limit, 0)

    def occupy(self, caps: Sequence[Cap], leases: Sequence[Lease]) -> None:
        """Count these leases against the caps under which they were claimed, in the transaction of the claim."""
        for cap in caps:
            self._slots[cap.scope].update(leases if cap.concurrency is not None else ())
        rates = _rates(caps)
        if rates:
            limits.occupy(self._memory.move(), rates, range(len(leases)), epoch=0)

    def use(self, scope: str) -> Use:
        """Return how many jobs run under the bound *scope*, and how far its starts are ahead of the rate."""
        [(tat,)] = self._memory.look(
            lambda: self._memory.execute("SELECT max(tat) FROM holdfast_meter WHERE scope = ?", [scope])
        )
        running = sum(self._is_current(lease) for lease in self._slots.get(scope, ()))
        ahead = 0 if tat is None else max(tat - self._memory.move().now, 0)
        return Use(running, timedelta(microseconds=ahead))

    def _is_current(self, lease: Lease) -> bool:
        job = self._tables.jobs.get(lease.job_id)
        return job is not None and job.holds(lease)

    async def weigh(self, weights: Mapping[str, float]) -> None:
        self._tables.weights |= weights

    def share(self, priorities: Mapping[str, int]) -> None:
        self._tables.turns.weights = dict(priorities)


def _rates(caps: Sequence[Cap]) -> list[Cap]:
    return [cap._replace(concurrency=None) for cap in caps if cap.rate is not None]


def open_lanes(database: Database, lanes: Sequence[Lane], trial: bool) -> Sequence[Lane]:
    """Return those of *lanes* that nothing holds; a *trial* passes breakers."""
    if not database.is_open:
        return lanes
    return database.peek(lambda move: holds.open_lanes(move.connection, move.now, lanes, trial))
