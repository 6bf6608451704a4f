"""Lanes made ahead, each committed at once on a connection of our own.

A lane that is made inside a transaction of a caller's keeps everyone who wants the same new lane waiting until that
transaction ends. So it is made beside it, where that can be done.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg

from holdfast.domain.job import Lane
from holdfast.stores.postgres.enqueue_plan import LANE_NUMBER, LANE_NUMBERS

#: Somebody else may be making the same lane in a long transaction: we would rather make it in the caller's, then.
_PATIENCE = "SET LOCAL lock_timeout = '1s'"


async def register(connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> dict[Lane, int]:
    """The numbers of these lanes, made if need be; committed when this returns."""
    async with connection.transaction():
        await connection.execute(_PATIENCE)
        ordered = sorted(lanes)
        columns = [list(column) for column in zip(*ordered, strict=True)]
        return dict(zip(ordered, await connection.fetchval(LANE_NUMBERS, *columns), strict=True))


def register_sync(url: str, lanes: Collection[Lane]) -> dict[Lane, int]:
    """The same for sync callers, who have psycopg; nothing where our own connection does not get through."""
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
