"""Create lanes ahead of an enqueue inside a caller's transaction, and commit them at once on another connection.

A lane that is created inside a caller's transaction makes all others that need the same new lane wait until that transaction
ends. So it is created outside of it where that is possible.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg

from holdfast.jobs.job import Lane
from holdfast.stores.postgres.enqueue_plan import LANE_NUMBER, LANE_NUMBERS

#: Another long transaction may have created the same lane. Then the caller's own transaction waits for it instead.
_PATIENCE = "SET LOCAL lock_timeout = '1s'"


async def register(connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> dict[Lane, int]:
    """Return the numbers of these lanes. Lanes that did not exist are created and committed."""
    async with connection.transaction():
        await connection.execute(_PATIENCE)
        ordered = sorted(lanes)
        columns = [list(column) for column in zip(*ordered, strict=True)]
        return dict(zip(ordered, await connection.fetchval(LANE_NUMBERS, *columns), strict=True))


def register_sync(url: str, lanes: Collection[Lane]) -> dict[Lane, int]:
    """Do the same as `register` for sync callers, with psycopg. Return no numbers if the database refuses the connection."""
    import psycopg

    try:
        with (
            psycopg.connect(url, connect_timeout=5, prepare_threshold=None) as connection,
            psycopg.RawCursor(connection) as cursor,
        ):
            cursor.execute(_PATIENCE)
            found: dict[Lane, int] = {}
            for lane in sorted(lanes):
                cursor.execute(LANE_NUMBER.encode(), tuple(lane))
                found[lane] = cursor.fetchall()[0][0]
            return found
    except psycopg.Error:
        return {}
