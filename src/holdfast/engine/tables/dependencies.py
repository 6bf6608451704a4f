"""The tables of dependencies: the breaker that all workers share, and what each worker reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.engine.lane_store import REPORT_COUNTS_FOR, DependencyReport, DependencyState
from holdfast.engine.ports import Row, Store, Transaction
from holdfast.engine.tables.sql import Transacts, fetch, insert, moment, to_json
from holdfast.jobs.job import Session
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.resilience.breaker import Breaker

#: Decode a breaker. A field that an older version did not write has its default.
_breaker_of = msgspec.json.Decoder(Breaker).decode

_REPORT = {
    "session_id": "bigint", "dependency": "text", "shard": "text", "version": "bigint", "vote": "boolean", "capacity": "int",
    "in_flight": "int", "latency": "float8", "calls": "bigint", "failures": "bigint",
}  # fmt: skip
_KEY = ("dependency", "shard", "session_id")

#: Replaces the value of the version before; the first version is inserted.
_SWAP = """
INSERT INTO holdfast.breaker AS b (dependency, shard, version, holding, value)
SELECT $1::text, $2::text, $3::bigint, $4::boolean, $5::jsonb
 WHERE $3::bigint = 1 OR EXISTS (SELECT 1 FROM holdfast.breaker WHERE dependency = $1::text AND shard = $2::text)
    ON CONFLICT (dependency, shard) DO UPDATE SET version = excluded.version, holding = excluded.holding, value = excluded.value
 WHERE b.version = excluded.version - 1
RETURNING version"""
#: A report from the future does not count either: the clock was set back. $1 how long a report counts, $2 names or null.
_STATES = """
WITH q AS MATERIALIZED (
    SELECT holdfast.clock() AS at
), r AS MATERIALIZED (
    SELECT x.* FROM q, holdfast.report x
     WHERE x.at BETWEEN q.at - $1::interval AND q.at + $1::interval AND ($2::text[] IS NULL OR x.dependency = ANY ($2::text[]))
), b AS MATERIALIZED (
    SELECT * FROM holdfast.breaker WHERE $2::text[] IS NULL OR dependency = ANY ($2::text[])
)
SELECT d.dependency, d.shard, b.value, count(r.session_id) AS callers,
       count(*) FILTER (WHERE r.vote AND r.version = coalesce(b.version, 0)) AS votes,
       coalesce(sum(r.capacity), 0)::bigint AS capacity, coalesce(sum(r.in_flight), 0)::bigint AS in_flight,
       avg(r.latency) AS latency, coalesce(sum(r.calls), 0)::bigint AS calls, coalesce(sum(r.failures), 0)::bigint AS failures, q.at
  FROM q, (SELECT dependency, shard FROM b UNION SELECT dependency, shard FROM r) d
  LEFT JOIN b ON b.dependency = d.dependency AND b.shard = d.shard
  LEFT JOIN r ON r.dependency = d.dependency AND r.shard = d.shard
 GROUP BY d.dependency, d.shard, b.value, b.version, q.at
 ORDER BY d.dependency, d.shard"""


async def dependency_states(store: Transacts) -> list[DependencyState]:
    """Return the state of every dependency that has a breaker's row or a current report. This writes nothing."""
    return await store.transact(read_states, reads=True)


async def swap_breaker(
    store: Store,
    dependency: Dependency,
    breaker: Breaker,
    *,
    holds: bool,
    kind: Kind | None = None,
    meta: Mapping[str, Any] | None = None,
) -> bool:
    """Replace the breaker of a dependency if its version is still the one before *breaker*, and return whether it was.

    Args:
        store: The store.
        dependency: The dependency.
        breaker: The new value. Its version is one more than that of the value that it replaces.
        holds: Whether claims skip the lanes of this dependency from now on, except for trials.
        kind: The event to record in the same transaction. None records none.
        meta: The meta of that event.
    """

    async def swap(transaction: Transaction) -> bool:
        given = (*dependency, breaker.version, holds, to_json(breaker))
        swapped = bool(await fetch(transaction, _SWAP, *given))
        if swapped and kind is not None:
            await transaction.record(kind, {"dependency": dependency.label, **(meta or {})})
        return swapped

    swapped = await store.transact(swap, atomic=kind is not None)
    if swapped and not holds:
        await store.lanes.freed()
    return swapped


class Reports:
    """Writes the reports of this process. A worker reports every second; what is on record is not written again at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Dependency, tuple[Session, DependencyReport, float]] = {}

    def news(self, session: Session, reports: Sequence[DependencyReport]) -> list[DependencyReport]:
        """Return those of *reports* that are not on record, or that will soon not count any more."""
        oldest = self._clock.monotonic() - REPORT_COUNTS_FOR.total_seconds() / 2
        return [one for one in reports if not self._is_written(session, one, oldest)]

    def _is_written(self, session: Session, report: DependencyReport, oldest: float) -> bool:
        known = self._written.get(report.dependency)
        return known is not None and known[:2] == (session, report) and known[2] > oldest

    async def write(
        self, transaction: Transaction, session: Session, reports: Sequence[DependencyReport]
    ) -> None:
        rows = [(session.id, *one.dependency, *one[1:]) for one in reports]
        await insert(transaction, "report", _REPORT, rows, key=_KEY, clock="at")

    def remember(self, session: Session, reports: Sequence[DependencyReport]) -> None:
        """Note that these reports were committed."""
        now = self._clock.monotonic()
        self._written |= {one.dependency: (session, one, now) for one in reports}


async def read_states(
    transaction: Transaction, only: Collection[Dependency] | None = None
) -> list[DependencyState]:
    """Return every dependency that has a breaker or a report that counts, or of those the ones in *only*."""
    names = None if only is None else sorted({one.name for one in only})
    states = map(state_of, await fetch(transaction, _STATES, REPORT_COUNTS_FOR, names))
    return [state for state in states if only is None or state.dependency in only]


def state_of(row: Row) -> DependencyState:
    """Decode a row of the states of dependencies."""
    return DependencyState(
        dependency=Dependency(row["dependency"], row["shard"]),
        breaker=Breaker() if row["value"] is None else _breaker_of(row["value"]),
        votes=row["votes"],
        callers=row["callers"],
        limit=row["capacity"],
        in_flight=row["in_flight"],
        latency=row["latency"],
        calls=row["calls"],
        failures=row["failures"],
        now=moment(row["at"]),
    )
