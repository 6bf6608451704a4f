"""The table of overrides. Each row is one override, from when it was set until it was replaced or unset, or expired.

Every change takes the next version first, and with it the lock on the one row of versions: changes happen one after the other, and a
process that knows the newest version knows all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.engine.ports import Row, Transaction
from holdfast.engine.tables.sql import (
    Transacts,
    fetch,
    from_json,
    maybe_moment,
    moment,
    read,
    to_json,
)
from holdfast.tasks.policy_file.overrides import Override

#: How many changes back an override is kept after it has ended.
KEPT_CHANGES = 10_000

_TAKE_VERSION = """INSERT INTO holdfast.policy_version AS v (id, version) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET version = v.version + 1
RETURNING version"""
_STATE = """SELECT (SELECT version FROM holdfast.policy_version WHERE id = 1) AS version, holdfast.clock() AS now"""
_IN_FORCE = "ended_at IS NULL AND coalesce(expires_at > holdfast.clock(), true)"
_HAS_EXPIRED = "ended_at IS NULL AND expires_at <= holdfast.clock()"
_SET = """INSERT INTO holdfast.policy_override (version, key, value, by, reason, token, set_at, expires_at)
SELECT $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::text, t.now, t.now + $7::interval
  FROM (SELECT holdfast.clock() AS now) AS t
RETURNING *"""
_END = """UPDATE holdfast.policy_override SET ended_at = holdfast.clock(), ended_by = $2::text, ended_reason = $3::text
 WHERE key = $1::text AND ended_at IS NULL"""
_END_EXPIRED = f"UPDATE holdfast.policy_override SET ended_at = expires_at WHERE {_HAS_EXPIRED} RETURNING *"
_FORGET = "DELETE FROM holdfast.policy_override WHERE version <= $1::bigint AND ended_at IS NOT NULL"


# -- read ---------------------------------------------------------------------------------------------------------------
async def newest(store: Transacts) -> tuple[int, datetime]:
    """Return the version of the newest change, 0 before the first, and the time by the store's clock."""
    [row] = await read(store, _STATE)
    return row["version"] or 0, moment(row["now"])


async def in_force(store: Transacts) -> list[Override]:
    """Return the overrides that are in force, oldest first."""
    return await store.transact(in_force_in, reads=True)


async def in_force_in(transaction: Transaction) -> list[Override]:
    """Return the overrides that are in force as *transaction* sees them, oldest first."""
    sql = f"SELECT * FROM holdfast.policy_override WHERE {_IN_FORCE} ORDER BY version"
    return [_override(row) for row in await fetch(transaction, sql)]


async def history(store: Transacts, key: str | None, *, before: int, limit: int) -> list[Override]:
    """Return overrides of versions below *before*, those that ended too, newest first; with *key*, those of one key."""
    only = "" if key is None else "key = $3::text AND "
    sql = f"SELECT * FROM holdfast.policy_override WHERE {only}version < $1::bigint ORDER BY version DESC LIMIT $2::int"
    given = (before, limit) if key is None else (before, limit, key)
    return [_override(row) for row in await read(store, sql, *given)]


async def has_expired(store: Transacts) -> bool:
    """Return whether the end of an override has not been recorded yet."""
    return bool(
        await read(store, f"SELECT 1 AS found FROM holdfast.policy_override WHERE {_HAS_EXPIRED} LIMIT 1")
    )


async def newest_of(transaction: Transaction, key: str) -> Override | None:
    """Return the last override of *key*, also if it has ended."""
    sql = "SELECT * FROM holdfast.policy_override WHERE key = $1::text ORDER BY version DESC LIMIT 1"
    rows = await fetch(transaction, sql, key)
    return _override(rows[0]) if rows else None


async def find_call(transaction: Transaction, key: str, token: str) -> Override | None:
    """Return the override of *key* that the call of this name has set, if it was made already."""
    sql = "SELECT * FROM holdfast.policy_override WHERE key = $1::text AND token = $2::text ORDER BY version LIMIT 1"
    rows = await fetch(transaction, sql, key, token)
    return _override(rows[0]) if rows else None


# -- change -------------------------------------------------------------------------------------------------------------
async def take_version(transaction: Transaction) -> int:
    """Return the version of the change that *transaction* makes. Other changes wait until it has ended."""
    [row] = await fetch(transaction, _TAKE_VERSION)
    version: int = row["version"]
    await fetch(transaction, _FORGET, version - KEPT_CHANGES)
    return version


async def add(
    transaction: Transaction, override: Override, *, token: str, lasts: timedelta | None
) -> Override:
    """Store *override*, and return it with the moments of the store. The key must have none in force."""
    value = to_json(override.value)
    given = override.version, override.key, value, override.by, override.reason, token, lasts
    [row] = await fetch(transaction, _SET, *given)
    return _override(row)


async def end(transaction: Transaction, key: str, *, by: str, reason: str) -> None:
    """End the override of *key*."""
    await fetch(transaction, _END, key, by, reason)


async def end_expired(transaction: Transaction) -> Sequence[Override]:
    """Record the end of overrides that have expired, and return them."""
    return [_override(row) for row in await fetch(transaction, _END_EXPIRED)]


def _override(row: Row) -> Override:
    return Override(
        key=row["key"],
        value=from_json(row["value"]),
        version=row["version"],
        by=row["by"],
        reason=row["reason"],
        set_at=moment(row["set_at"]),
        expires_at=maybe_moment(row["expires_at"]),
        ended_at=maybe_moment(row["ended_at"]),
        ended_by=row["ended_by"],
        ended_reason=row["ended_reason"],
    )
