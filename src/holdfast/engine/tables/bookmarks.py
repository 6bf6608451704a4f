"""The table of bookmarks: numbers by name, moved by compare-and-set. They say how far readers of events have come."""

from __future__ import annotations

from holdfast.engine.tables.sql import Transacts, read, write

# A number is stored as text, because in an old cluster that of an event may exceed a bigint.
_ADD = "INSERT INTO holdfast.bookmark (name, event) VALUES ($1::text, $2::text) ON CONFLICT (name) DO NOTHING RETURNING name"
_MOVE = (
    "UPDATE holdfast.bookmark SET event = $2::text WHERE name = $1::text AND event = $3::text RETURNING name"
)


async def get(store: Transacts, name: str) -> int | None:
    """Return the number of this name; None if it was never set."""
    rows = await read(store, "SELECT event FROM holdfast.bookmark WHERE name = $1::text", name)
    return int(rows[0]["event"]) if rows else None


async def move(store: Transacts, name: str, *, before: int | None, to: int) -> bool:
    """Set the number, if it is still *before* (None: it was never set). Return whether it was set."""
    if before is None:
        return bool(await write(store, _ADD, name, str(to)))
    return bool(await write(store, _MOVE, name, str(to), str(before)))
