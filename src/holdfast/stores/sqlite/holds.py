"""Holds: what claims pass by. A hold is one row, read by the claim; held jobs are not touched (rule 7 of docs/explanation/reliability.md)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.job import Lane
from holdfast.domain.lanes import Cause, Held, Scope, ScopeKind
from holdfast.domain.moves import Kind
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.move import SQL, Move
from holdfast.stores.sqlite.times import moment, span

#: Asked first: on most days nothing is held, and then no lane has to be looked at.
ANYTHING_HELD = (
    "SELECT EXISTS (SELECT 1 FROM holdfast_hold) OR EXISTS (SELECT 1 FROM holdfast_breaker WHERE holding)"
)


def hold(move: Move, scope: Scope, cause: Cause, length: timedelta | None, reason: str, by: str) -> None:
    until = None if length is None else move.now + span(length)
    move.connection.execute("DELETE FROM holdfast_hold WHERE until <= ?", (move.now,))  # those that are over
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


def resume(move: Move, scope: Scope, cause: Cause, by: str) -> bool:
    ended = move.connection.execute(
        "DELETE FROM holdfast_hold WHERE kind = ? AND name = ? AND cause = ? AND (until IS NULL OR until > ?)",
        (*scope, cause, move.now),
    ).rowcount
    if ended and cause is Cause.PAUSE:
        move.record_no_job(Kind.resumed, {"scope": str(scope), "by": by})
    return bool(ended)


def holds(move: Move) -> list[Held]:
    rows = move.connection.execute(
        "SELECT kind, name, cause, until, reason, by, at FROM holdfast_hold WHERE until IS NULL OR until > ? ORDER BY at",
        (move.now,),
    )
    return [
        Held(
            scope=Scope(ScopeKind(kind), name),
            cause=Cause(cause),
            until=None if until is None else moment(until),
            reason=reason,
            by=by,
            at=moment(at),
        )
        for kind, name, cause, until, reason, by, at in rows
    ]


def open_lanes(
    connection: sqlite3.Connection, now: int, lanes: Sequence[Lane], trial: bool
) -> Sequence[Lane]:
    """Return those of *lanes* that nothing holds; a *trial* passes breakers. *lanes* itself while nothing is held at all."""
    [(anything,)] = connection.execute(ANYTHING_HELD)
    if not anything:
        return lanes
    rows = connection.execute(SQL["holding"], (named(lanes), now, trial))
    held = {place for (place,) in rows}
    return [lane for place, lane in enumerate(lanes) if place not in held]


def named(lanes: Sequence[Lane]) -> str:
    """Return *lanes* as the query `holding` reads them."""
    return to_json([[*lane[:4], lane.label] for lane in lanes])
