"""The table of holds: claims skip the lanes that are held. `LaneStore.hold` writes it."""

from __future__ import annotations

from holdfast.engine.ports import Store, Transaction
from holdfast.engine.tables.sql import Transacts, fetch, maybe_moment, moment, read
from holdfast.jobs.lanes import Cause, Held, Scope, ScopeKind
from holdfast.jobs.moves import Kind

# A hold without an end has NULL on SQLite and 'infinity' on PostgreSQL.
_IN_FORCE = """SELECT kind, name, cause, nullif(until, 'infinity') AS until, reason, by, at FROM holdfast.hold
 WHERE until IS NULL OR until > holdfast.clock() ORDER BY at, kind, name"""
_END = """DELETE FROM holdfast.hold WHERE kind = $1::text AND name = $2::text AND cause = $3::text
   AND (until IS NULL OR until > holdfast.clock())
RETURNING name"""


async def holds_in_force(store: Transacts) -> list[Held]:
    """Return the holds that are in force, oldest first."""
    return [
        Held(
            scope=Scope(ScopeKind(row["kind"]), row["name"]),
            cause=Cause(row["cause"]),
            until=maybe_moment(row["until"]),
            reason=row["reason"],
            by=row["by"],
            at=moment(row["at"]),
        )
        for row in await read(store, _IN_FORCE)
    ]


async def end_pause(store: Store, scope: Scope, *, by: str) -> bool:
    """End a person's pause early, and return whether there was one. Its end is recorded as an event (`resumed`)."""

    async def end(transaction: Transaction) -> bool:
        was_held = bool(await fetch(transaction, _END, *scope, Cause.PAUSE))
        if was_held:
            await transaction.record(Kind.resumed, {"scope": str(scope), "by": by})
        return was_held

    ended = await store.transact(end)
    # Also if this call has ended none: one before may have, and its answer was lost.
    await store.lanes.freed()
    return ended
