"""Read the queue position of a job by one statement, so that all of it was true at once."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.moves import Kind
from holdfast.jobs.queue_position import LAST_MOVE, MOST_AHEAD, LastMove, Place, QueuePosition, Use
from holdfast.stores.encoding import from_json, read_json, shown
from holdfast.stores.postgres.enqueue_plan import SQL


async def queue_position(
    connection: asyncpg.Connection[Any], job_id: JobId, scopes: Collection[str]
) -> QueuePosition | None:
    row = await connection.fetchrow(SQL["queue_position"], job_id, MOST_AHEAD, int(LAST_MOVE), list(scopes))
    if row is None:
        return None
    place = None if row["place"] is None else Place(row["place"])
    return QueuePosition(
        lane=Lane(row["queue"], row["task"], row["dependency"], row["shard"], row["fair"]),
        place=place,
        now=row["now"],
        ahead=row["ahead"] if place is Place.LINE else None,
        holder=None if row["holder"] is None else JobId(row["holder"]),
        key_slots=row["key_slots"] or 1,
        last=None if row["kind"] is None else _last(row),
        use={
            scope: Use(running, timedelta(seconds=ahead))
            for scope, running, ahead in from_json(row["use"] or "[]")
        },
    )


def _last(row: asyncpg.Record) -> LastMove:
    return LastMove(
        Kind(row["kind"]).name, row["at"], row["attempt"] or 0, shown(read_json(row["meta"]) or {})
    )
