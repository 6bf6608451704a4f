"""Holds: what claims pass by. A hold is one row, read by the claim itself; held jobs are not touched (rule 7 of docs/explanation/reliability.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.lanes import Cause, Held, Scope, ScopeKind
from holdfast.domain.moves import Kind
from holdfast.stores.encoding import some
from holdfast.stores.postgres.move import Move


async def hold(
    move: Move, scope: Scope, cause: Cause, span: timedelta | None, reason: str, by: str, token: str | None
) -> None:
    """*token* names the call of a person; without one a hold can only be lengthened."""
    rows = await move.run("hold", *scope, cause, span, reason, by, token)
    if rows and cause is Cause.PAUSE:
        until = rows[0][0]
        meta = {"scope": str(scope), "reason": reason, "by": by, "until": until and until.isoformat()}
        await move.record_no_job(Kind.paused, some(meta))


async def resume(move: Move, scope: Scope, cause: Cause, by: str) -> bool:
    ended = await move.connection.fetchval(
        "DELETE FROM holdfast.hold WHERE kind = $1 AND name = $2 AND cause = $3 RETURNING until > holdfast.clock()",
        *scope,
        cause,
    )
    if ended and cause is Cause.PAUSE:
        await move.record_no_job(Kind.resumed, {"scope": str(scope), "by": by})
    return bool(ended)


async def holds(connection: asyncpg.Connection[Any]) -> list[Held]:
    rows = await connection.fetch(
        "SELECT kind, name, cause, nullif(until, 'infinity') AS until, reason, by, at FROM holdfast.hold"
        " WHERE until > holdfast.clock() ORDER BY at, kind, name"
    )
    return [
        Held(
            scope=Scope(ScopeKind(row["kind"]), row["name"]),
            cause=Cause(row["cause"]),
            until=row["until"],
            reason=row["reason"],
            by=row["by"],
            at=row["at"],
        )
        for row in rows
    ]


async def forget_ended(connection: asyncpg.Connection[Any]) -> None:
    await connection.execute("DELETE FROM holdfast.hold WHERE until < holdfast.clock()")
