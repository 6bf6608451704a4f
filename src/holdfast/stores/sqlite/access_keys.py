"""Keys of the front doors."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from holdfast.domain.access import AccessKey
from holdfast.stores.api_encoding import access_key
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import moment, span


def add_key(move: Move, key: AccessKey, lasts: timedelta | None) -> AccessKey:
    move.connection.execute(
        "INSERT INTO holdfast_access_key (id, name, role, owner, digest, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET digest = excluded.digest",
        (key.id, key.name, key.role, key.owner, key.digest, move.now, None if lasts is None else move.now + span(lasts)),
    )  # fmt: skip
    [added] = _keys(move, "WHERE id = ?", key.id)
    return added


def keys(move: Move) -> list[AccessKey]:
    return _keys(move, "ORDER BY created_at, rowid")


def key(move: Move, digest: bytes) -> AccessKey | None:
    valid = "WHERE digest = ?1 AND coalesce(expires_at > ?2, true) AND coalesce(revoked_at > ?2, true)"
    return next(iter(_keys(move, valid, digest, move.now)), None)


def _keys(move: Move, clause: str, *parameters: object) -> list[AccessKey]:
    rows = move.rows(f"SELECT * FROM holdfast_access_key {clause}", *parameters)
    return [access_key(row, moment) for row in rows]


def revoke_key(move: Move, key_id: str, after: timedelta) -> bool:
    changed = move.connection.execute(
        "UPDATE holdfast_access_key SET revoked_at = min(coalesce(revoked_at, ?2), ?2)"
        " WHERE id = ?1 AND coalesce(expires_at > ?3, true) AND coalesce(revoked_at > ?3, true)",
        (key_id, move.now + span(after), move.now),
    )
    return changed.rowcount == 1


def touch_keys(move: Move, key_ids: Collection[str]) -> None:
    move.connection.executemany(
        "UPDATE holdfast_access_key SET last_used_at = ? WHERE id = ?",
        [(move.now, key_id) for key_id in key_ids],
    )
