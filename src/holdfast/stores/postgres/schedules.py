"""Where schedules stand: one row each, moved on by compare-and-set, so that of many processes one enqueues (E39)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg

from holdfast.engine.lane_store import Tick
from holdfast.stores.postgres.enqueue_plan import SQL


async def ticks(connection: asyncpg.Connection[Any]) -> list[Tick]:
    rows = await connection.fetch("SELECT name, last, due, ticked FROM holdfast.schedule_tick ORDER BY name")
    return [Tick(*row) for row in rows]


async def tick(
    connection: asyncpg.Connection[Any],
    name: str,
    before: datetime | None,
    last: datetime,
    due: datetime,
    ticked: datetime | None,
) -> bool:
    return bool(await connection.fetch(SQL["tick"], name, before, last, due, ticked))


async def forget_schedule(connection: asyncpg.Connection[Any], name: str) -> bool:
    sql = "DELETE FROM holdfast.schedule_tick WHERE name = $1 RETURNING name"
    return await connection.fetchval(sql, name) is not None
