"""The table of API keys. Each is stored as the SHA-256 of its secret."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from holdfast.engine.access import AccessKey, Role
from holdfast.engine.ports import Row
from holdfast.engine.tables.sql import Transacts, maybe_moment, moment, read, write

_VALID = "coalesce(expires_at > holdfast.clock(), true) AND coalesce(revoked_at > holdfast.clock(), true)"
# The clock is read once, so that a key lasts exactly as long as it should.
_ADD = """INSERT INTO holdfast.access_key (id, name, role, owner, digest, created_at, expires_at)
SELECT $1::text, $2::text, $3::text, $4::text, $5::bytea, t.now, t.now + $6::interval
  FROM (SELECT holdfast.clock() AS now) AS t WHERE true
    ON CONFLICT (id) DO UPDATE SET digest = excluded.digest
RETURNING *"""
_REVOKE = f"""UPDATE holdfast.access_key
   SET revoked_at = least(coalesce(revoked_at, holdfast.clock() + $2::interval), holdfast.clock() + $2::interval)
 WHERE id = $1::text AND {_VALID}
RETURNING id"""
# In one order, and without those that another process is writing: it writes the same.
_MARK_USED = """UPDATE holdfast.access_key SET last_used_at = holdfast.clock()
 WHERE id IN (SELECT id FROM holdfast.access_key WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE SKIP LOCKED)"""


async def add(store: Transacts, key: AccessKey, *, lasts: timedelta | None) -> AccessKey:
    """Store a key and return it with the store's moments: *created_at*, and *expires_at* where it *lasts* for a time.

    A key whose id is known stays as it is, but for its digest: the caller creates it again because its secret was lost.
    """
    values = key.id, key.name, str(key.role), key.owner, key.digest, lasts
    [row] = await write(store, _ADD, *values)
    return _key(row)


async def every(store: Transacts) -> list[AccessKey]:
    """Return all keys, those that ended too, oldest first."""
    return [
        _key(row) for row in await read(store, "SELECT * FROM holdfast.access_key ORDER BY created_at, id")
    ]


async def find(store: Transacts, digest: bytes) -> AccessKey | None:
    """Return the valid key of this digest."""
    rows = await read(
        store, f"SELECT * FROM holdfast.access_key WHERE digest = $1::bytea AND {_VALID}", digest
    )
    return _key(rows[0]) if rows else None


async def revoke(store: Transacts, key_id: str, *, after: timedelta = timedelta()) -> bool:
    """End a key *after* this time, never later than it would have ended. Return False when no valid key has this id."""
    return bool(await write(store, _REVOKE, key_id, after))


async def mark_used(store: Transacts, key_ids: Collection[str]) -> None:
    """Record that these keys are used now."""
    if key_ids:
        await write(store, _MARK_USED, list(key_ids))


def _key(row: Row) -> AccessKey:
    return AccessKey(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        owner=row["owner"],
        digest=row["digest"],
        created_at=moment(row["created_at"]),
        expires_at=maybe_moment(row["expires_at"]),
        revoked_at=maybe_moment(row["revoked_at"]),
        last_used_at=maybe_moment(row["last_used_at"]),
    )
