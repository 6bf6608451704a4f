"""Dependencies: the breaker that all workers share, and what each of them reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.breaker import Breaker
from holdfast.domain.job import Session
from holdfast.domain.lanes import Dependency
from holdfast.domain.moves import Kind
from holdfast.engine.lane_store import REPORT_COUNTS_FOR, DependencyReport, DependencyState
from holdfast.stores.encoding import breaker_json, breaker_of
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move

#: How long the reports of workers that are gone are kept.
_KEEP = timedelta(minutes=1)


async def swap_breaker(
    move: Move,
    dependency: Dependency,
    breaker: Breaker,
    holds: bool,
    kind: Kind | None,
    meta: Mapping[str, Any] | None,
) -> bool:
    swapped = await move.run("swap_breaker", *dependency, breaker.version, holds, breaker_json(breaker))
    if swapped and kind is not None:
        await move.record_no_job(kind, {"dependency": dependency.label, **(meta or {})})
    return bool(swapped)


async def report(
    connection: asyncpg.Connection[Any], session: Session, reports: Sequence[DependencyReport]
) -> list[DependencyState]:
    if not reports:
        return []
    columns = zip(*((*one.dependency, *one[1:]) for one in reports), strict=True)
    rows = await connection.fetch(SQL["report"], session.id, REPORT_COUNTS_FOR, *map(list, columns))
    return [_dependency_state(row) for row in rows]


async def dependency_states(connection: asyncpg.Connection[Any]) -> list[DependencyState]:
    return [
        _dependency_state(row) for row in await connection.fetch(SQL["dependency_states"], REPORT_COUNTS_FOR)
    ]


def _dependency_state(row: asyncpg.Record) -> DependencyState:
    return DependencyState(
        dependency=Dependency(row["dependency"], row["shard"]),
        breaker=Breaker() if row["value"] is None else breaker_of(row["value"]),
        votes=row["votes"],
        callers=row["callers"],
        limit=row["capacity"],
        in_flight=row["in_flight"],
        latency=row["latency"],
        calls=row["calls"],
        failures=row["failures"],
        now=row["at"],
    )


async def leave(connection: asyncpg.Connection[Any], session: Session) -> None:
    """This worker calls nobody any more."""
    await connection.execute("DELETE FROM holdfast.report WHERE session_id = $1", session.id)


async def forget_reports(connection: asyncpg.Connection[Any]) -> None:
    """Those of workers that were lost."""
    await connection.execute(
        "DELETE FROM holdfast.report WHERE ctid = ANY (ARRAY("
        "SELECT ctid FROM holdfast.report WHERE at < holdfast.clock() - $1::interval FOR UPDATE SKIP LOCKED))",
        _KEEP,
    )
