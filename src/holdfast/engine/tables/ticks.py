"""The table of schedules: one row each, moved by compare-and-set, so that one of many processes enqueues a tick."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.engine.tables.sql import Transacts, maybe_moment, moment, read, write

_ADD = """INSERT INTO holdfast.schedule_tick (name, last, due, ticked)
VALUES ($1::text, $2::timestamptz, $3::timestamptz, $4::timestamptz) ON CONFLICT (name) DO NOTHING RETURNING name"""
_MOVE = """UPDATE holdfast.schedule_tick
   SET last = $2::timestamptz, due = $3::timestamptz, ticked = coalesce($4::timestamptz, ticked)
 WHERE name = $1::text AND last = $5::timestamptz
RETURNING name"""


class Tick(NamedTuple):
    """The position of a schedule."""

    name: str
    last: (
        datetime | None
    )  #: every tick until then was handled: enqueued, or left out by the rule of the schedule
    due: datetime
    ticked: datetime | None = None  #: the newest tick whose job was enqueued


async def every(store: Transacts) -> list[Tick]:
    """Return the positions of all schedules that any process has served, by name."""
    rows = await read(store, "SELECT name, last, due, ticked FROM holdfast.schedule_tick ORDER BY name")
    return [
        Tick(row["name"], maybe_moment(row["last"]), moment(row["due"]), maybe_moment(row["ticked"]))
        for row in rows
    ]


async def move(
    store: Transacts,
    name: str,
    *,
    before: datetime | None,
    last: datetime,
    due: datetime,
    ticked: datetime | None = None,
) -> bool:
    """Move a schedule on, if its *last* is still *before* (None: the schedule is new). Return whether it was.

    Without *ticked* the newest enqueued tick stays what it was.
    """
    if before is None:
        return bool(await write(store, _ADD, name, last, due, ticked))
    return bool(await write(store, _MOVE, name, last, due, ticked, before))


async def forget(store: Transacts, name: str) -> bool:
    """Delete the position of a schedule and return whether there was one.

    A schedule that is still declared starts again: earlier ticks do not count as missed.
    """
    sql = "DELETE FROM holdfast.schedule_tick WHERE name = $1::text RETURNING name"
    return bool(await write(store, sql, name))
