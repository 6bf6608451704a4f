"""The table of bookmarks: numbers by name, moved by compare-and-set. They say how far readers of events have come."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engine.ports import Transaction
from holdfast.engine.tables.sql import Transacts, fetch, read

# A number is stored as text, because in an old cluster that of an event may exceed a bigint.
_ADD = "INSERT INTO holdfast.bookmark (name, event) VALUES ($1::text, $2::text) ON CONFLICT (name) DO NOTHING RETURNING name"
_PUT = """INSERT INTO holdfast.bookmark (name, event) VALUES ($1::text, $2::text)
    ON CONFLICT (name) DO UPDATE SET event = excluded.event"""
_SEVERAL = "SELECT name, event FROM holdfast.bookmark WHERE name = ANY ($1::text[])"
_MOVE = (
    "UPDATE holdfast.bookmark SET event = $2::text WHERE name = $1::text AND event = $3::text RETURNING name"
)


async def get(store: Transacts, name: str) -> int | None:
    """Return the number of this name; None if it was never set."""
    return (await several(store, [name])).get(name)


async def several(store: Transacts, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of these names, without those that were never set."""
    rows = await read(store, _SEVERAL, list(names))
    return {row["name"]: int(row["event"]) for row in rows}


async def move(store: Transacts, name: str, *, before: int | None, to: int) -> bool:
    """Set the number, if it is still *before* (None: it was never set). Return whether it was set."""
    return await store.transact(
        lambda transaction: move_in(transaction, name, before=before, to=to), atomic=False
    )


async def move_in(transaction: Transaction, name: str, *, before: int | None, to: int) -> bool:
    """Do the same in a transaction, whose other writes then belong to the move."""
    if before is None:
        return bool(await fetch(transaction, _ADD, name, str(to)))
    return bool(await fetch(transaction, _MOVE, name, str(to), str(before)))


async def put_in(transaction: Transaction, name: str, to: int) -> None:
    """Set the number in a transaction, whatever it was. Another transaction that moves it waits for the end of this one."""
    await fetch(transaction, _PUT, name, str(to))
