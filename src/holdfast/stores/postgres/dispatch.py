"""Jobs that a broker hands out. `holdfast.engine.dispatch` has the contract."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.jobs.job import Claimed, JobId, Lane, Session
from holdfast.jobs.moves import Kind
from holdfast.stores.encoding import MOST_PER_EVENT
from holdfast.stores.postgres.claims import claimed
from holdfast.stores.postgres.database import UNDONE, Database
from holdfast.stores.postgres.ids import is_uuid
from holdfast.stores.postgres.move import Move

_NOTHING = timedelta()
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_READY = "SELECT id, generation, lane, prio, NULL::interval AS delay FROM holdfast.ready WHERE key IS NULL"
_LATER = (
    "SELECT id, generation, lane, prio, run_at - holdfast.clock() AS delay FROM holdfast.deferred"
    " WHERE key IS NULL"
)


class Dispatch:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        known = [hint for hint in dict.fromkeys(hints) if is_uuid(hint.job_id)][:MOST_PER_EVENT]
        if not known:
            return []
        # Sent again only when the server undid it: see `claim`.
        return await self._database.run(
            "claim", lambda db: self._claim_jobs(db, session, known), again=UNDONE
        )

    async def _claim_jobs(
        self, connection: asyncpg.Connection[Any], session: Session, hints: list[DispatchHint]
    ) -> list[Claimed]:
        move = self._database.move(connection)
        if not any(Kind.processing in kinds for kinds, _ in self._database.hooks):
            return await _take(move, session, hints)
        async with connection.transaction():
            taken = await _take(move, session, hints)
            for one in taken:
                move.notice(Kind.processing, one.lease, one.attempt, {"worker": session.worker})
            await move.call_hooks()
        return taken

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        asked = [one for one in dict.fromkeys(ids) if is_uuid(one)]
        return await self._entries(
            f"{_READY} AND id = ANY ($1::uuid[]) UNION ALL {_LATER} AND id = ANY ($1::uuid[])", asked
        )

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        page = "AND id > $1::uuid ORDER BY id LIMIT $2::int"
        sql = f"SELECT * FROM (({_READY} {page}) UNION ALL ({_LATER} {page})) x ORDER BY id LIMIT $2::int"
        return await self._entries(sql, after or _FIRST_ID, limit)

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        sql = f"{_LATER} AND run_at > holdfast.clock() AND run_at <= holdfast.clock() + $1::interval ORDER BY run_at, id LIMIT $2::int"
        return await self._entries(sql, within, limit)

    async def count_waiting(self) -> dict[Lane, Depth]:
        rows = await self._database.rows(
            "SELECT lane, sum(due)::bigint, sum(later)::bigint FROM ("
            " SELECT lane, count(*) AS due, 0 AS later FROM holdfast.ready WHERE key IS NULL GROUP BY lane UNION ALL"
            " SELECT lane, 0, count(*) FROM holdfast.deferred WHERE key IS NULL GROUP BY lane) x GROUP BY lane"
        )
        lane_of = await self._database.read(
            lambda db: self._database.lanes.by_number(db, [number for number, _, _ in rows])
        )
        return {lane_of[number]: Depth(due, later) for number, due, later in rows}

    async def _entries(self, sql: str, *parameters: Any) -> list[DispatchEntry]:
        async def read(connection: asyncpg.Connection[Any]) -> list[DispatchEntry]:
            rows = await connection.fetch(sql, *parameters)
            lane_of = await self._database.lanes.by_number(connection, [row["lane"] for row in rows])
            return [
                DispatchEntry(
                    JobId(str(job_id)), generation, lane_of[lane], -prio, max(delay or _NOTHING, _NOTHING)
                )
                for job_id, generation, lane, prio, delay in rows
            ]

        return await self._database.read(read)


async def _take(move: Move, session: Session, hints: list[DispatchHint]) -> list[Claimed]:
    rows = await move.run(
        "claim_jobs", session.id, [hint.job_id for hint in hints], [hint.generation for hint in hints]
    )
    lane_of = await move.lanes.by_number(move.connection, [row["lane"] for row in rows])
    return [claimed(row, lane_of) for row in rows]
