"""Keys of the front doors."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.access import AccessKey
from holdfast.stores.api_encoding import access_key
from holdfast.stores.postgres.times import moment

_VALID = "coalesce(expires_at > holdfast.clock(), true) AND coalesce(revoked_at > holdfast.clock(), true)"


async def add_key(connection: asyncpg.Connection[Any], key: AccessKey, lasts: timedelta | None) -> AccessKey:
    await connection.execute(
        "INSERT INTO holdfast.access_key (id, name, role, owner, digest, created_at, expires_at)"
        " SELECT $1::text, $2::text, $3::text, $4::text, $5::bytea, now, now + $6::interval FROM holdfast.clock() now"
        " ON CONFLICT (id) DO UPDATE SET digest = excluded.digest",
        key.id, key.name, str(key.role), key.owner, key.digest, lasts,
    )  # fmt: skip
    [row] = await connection.fetch("SELECT * FROM holdfast.access_key WHERE id = $1", key.id)
    return access_key(row, moment)


async def keys(connection: asyncpg.Connection[Any]) -> list[AccessKey]:
    rows = await connection.fetch("SELECT * FROM holdfast.access_key ORDER BY created_at, id")
    return [access_key(row, moment) for row in rows]


async def key(connection: asyncpg.Connection[Any], digest: bytes) -> AccessKey | None:
    row = await connection.fetchrow(
        f"SELECT * FROM holdfast.access_key WHERE digest = $1::bytea AND {_VALID}", digest
    )
    return None if row is None else access_key(row, moment)


async def revoke_key(connection: asyncpg.Connection[Any], key_id: str, after: timedelta) -> bool:
    sql = f"""UPDATE holdfast.access_key SET revoked_at = least(revoked_at, holdfast.clock() + $2::interval)
               WHERE id = $1::text AND {_VALID} RETURNING id"""
    return await connection.fetchval(sql, key_id, after) is not None


async def touch_keys(connection: asyncpg.Connection[Any], key_ids: Collection[str]) -> None:
    # In one order and passing by those that another process writes: it writes the same.
    await connection.execute(
        "UPDATE holdfast.access_key SET last_used_at = holdfast.clock() WHERE id IN"
        " (SELECT id FROM holdfast.access_key WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE SKIP LOCKED)",
        list(key_ids),
    )
