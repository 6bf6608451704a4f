"""Holds: what claims pass by. A hold is one row, read by the claim; held jobs are not touched (rule 7 of docs/explanation/reliability.md)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Lane
from holdfast.domain.lanes import Cause, Dependency, Held, Scope, ScopeKind
from holdfast.domain.moves import Kind
from holdfast.stores.sqlite.move import SQL, Move
from holdfast.stores.sqlite.times import moment, span


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
    """Those that nothing holds; a *trial* passes breakers. One look at tables that are empty on most days."""
    rows = connection.execute(SQL["holding"], (now,)).fetchall()
    return unheld(rows, lanes, trial) if rows else lanes


def unheld(rows: Sequence[tuple[Any, ...]], lanes: Sequence[Lane], trial: bool) -> Sequence[Lane]:
    """Those of *lanes* that nothing of *rows* holds, which is what the query `holding` has found."""
    held = [Scope(ScopeKind(kind), name) for kind, name, _ in rows if kind is not None]
    broken = {Dependency(name, shard) for kind, name, shard in rows if kind is None and not trial}
    return [
        lane
        for lane in lanes
        if Dependency.of(lane) not in broken and not any(scope.covers(lane) for scope in held)
    ]
