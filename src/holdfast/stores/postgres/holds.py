"""Holds: claims skip the lanes that are held.

A hold is one row, which the statement of the claim reads. Held jobs are not changed (rule 7 of docs/explanation/reliability.md).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.jobs.lanes import Cause, Scope
from holdfast.jobs.moves import Kind
from holdfast.stores.postgres.move import Move


async def hold(
    move: Move, scope: Scope, cause: Cause, span: timedelta | None, reason: str, by: str, token: str | None
) -> None:
    """Hold *scope* for *span*, or without an end if that is None.

    *token* identifies a call of a person, so that it has one effect when it is sent again. Without a token the hold can only
    be lengthened.
    """
    rows = await move.run("hold", *scope, cause, span, reason, by, token)
    if rows and cause is Cause.PAUSE:
        until = rows[0][0]
        meta = {"scope": str(scope), "reason": reason, "by": by, "until": until and until.isoformat()}
        await move.transaction.record(Kind.paused, meta)


async def forget_ended(connection: asyncpg.Connection[Any]) -> None:
    """Delete the holds that have ended."""
    await connection.execute("DELETE FROM holdfast.hold WHERE until < holdfast.clock()")
