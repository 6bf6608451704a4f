"""Holds: claims skip the lanes that are held.

A hold is one row, which the claim reads. Held jobs are not changed (rule 7 of docs/explanation/reliability.md).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Cause, Scope
from holdfast.jobs.moves import Kind
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import SQL, Move
from holdfast.stores.sqlite.times import moment, span

#: Asked first: usually nothing is held, and then no lane has to be checked.
ANYTHING_HELD = (
    "SELECT EXISTS (SELECT 1 FROM holdfast_hold) OR EXISTS (SELECT 1 FROM holdfast_breaker WHERE holding)"
)


def hold(move: Move, scope: Scope, cause: Cause, length: timedelta | None, reason: str, by: str) -> None:
    """Hold *scope* for *length*, or without an end if that is None. Delete the holds that have ended."""
    until = None if length is None else move.now + span(length)
    move.connection.execute("DELETE FROM holdfast_hold WHERE until <= ?", (move.now,))
    move.run(
        "hold",
        kind=scope.kind,
        name=scope.name,
        cause=cause,
        until=until,
        reason=reason,
        by=by,
        now=move.now,
        longer=cause is Cause.RETRY_AFTER,
    )
    if cause is Cause.PAUSE:
        ends = None if until is None else moment(until).isoformat()
        move.record_no_job(Kind.paused, {"scope": str(scope), "reason": reason, "by": by, "until": ends})


def open_lanes(
    connection: sqlite3.Connection, now: int, lanes: Sequence[Lane], trial: bool
) -> Sequence[Lane]:
    """Return those of *lanes* that are not held, or *lanes* itself while nothing is held. For a *trial* breakers hold nothing."""
    [(anything,)] = connection.execute(ANYTHING_HELD)
    if not anything:
        return lanes
    rows = connection.execute(SQL["holding"], (named(lanes), now, trial))
    held = {place for (place,) in rows}
    return [lane for place, lane in enumerate(lanes) if place not in held]


def named(lanes: Sequence[Lane]) -> str:
    """Return *lanes* as the query `holding` reads them."""
    return to_json([[*lane[:4], lane.label] for lane in lanes])
