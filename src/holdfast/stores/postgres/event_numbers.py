"""Keep event numbers growing after a restore: a new cluster counts its transactions from 0, so an offset is added (ADR 0002)."""

from __future__ import annotations

from typing import Any

import asyncpg

LAG = "SELECT holdfast.event_numbers_lag()"
OFFSET = "SELECT holdfast.event_offset()"


async def keep_growing(connection: asyncpg.Connection[Any]) -> None:
    """Raise the offset if the number of the newest event is above the next one of this cluster.

    The lock waits for transactions that have written events and holds back new ones: a number under the old offset that commits
    after one under the new would never be read, because readers have passed its place.
    """
    if not await connection.fetchval(LAG):
        return
    async with connection.transaction():
        await connection.execute("LOCK TABLE holdfast.event IN SHARE ROW EXCLUSIVE MODE")
        # Above the newest event for every transaction that may still write, the oldest one that runs included.
        await connection.execute(
            "SELECT setval('holdfast.event_offset', (SELECT max(seq) >> 20 FROM holdfast.event) + 1"
            " - pg_snapshot_xmin(pg_current_snapshot())::text::bigint) WHERE holdfast.event_numbers_lag()"
        )
