"""Jobs that a broker hands out. `holdfast.engine.dispatch` has the contract."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.jobs.job import Claimed, JobId, Lane, Session
from holdfast.stores.encoding import MOST_PER_EVENT, to_json
from holdfast.stores.sqlite.claims import PROMOTE_FIRST, is_live, take
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span

_ENTRIES = (
    "SELECT uid, generation, lane, prio, CASE phase WHEN 1 THEN max(run_at - :now, 0) ELSE 0 END FROM holdfast_job"
    " WHERE phase <= 1 AND key IS NULL"
)


class Dispatch:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        distinct = list(dict.fromkeys(hints))[:MOST_PER_EVENT]
        return (
            await self._database.write(lambda move: _claim_jobs(move, session, distinct)) if distinct else []
        )

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        sql = f"{_ENTRIES} AND uid IN (SELECT value FROM json_each(:ids))"
        return self._database.peek(lambda move: _entries(move, sql, ids=to_json(list(ids))))

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        sql = f"{_ENTRIES} AND uid > :after ORDER BY uid LIMIT :limit"
        return self._database.peek(lambda move: _entries(move, sql, after=after or "", limit=limit))

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        sql = f"{_ENTRIES} AND phase = 1 AND run_at > :now AND run_at <= :now + :within ORDER BY run_at LIMIT :limit"
        return self._database.peek(lambda move: _entries(move, sql, within=span(within), limit=limit))

    async def count_waiting(self) -> dict[Lane, Depth]:
        return self._database.peek(_count_waiting)


def _claim_jobs(move: Move, session: Session, hints: list[DispatchHint]) -> list[Claimed]:
    if not is_live(move, session):
        return []
    move.run("promote", now=move.now, limit=PROMOTE_FIRST).fetchall()
    rows = move.connection.execute(
        "SELECT j.id, j.lane FROM json_each(?) h JOIN holdfast_job j"
        " ON j.uid = json_extract(h.value, '$[0]') AND j.generation = json_extract(h.value, '$[1]')"
        " WHERE j.phase = 0 AND j.key IS NULL ORDER BY h.key",
        (to_json(hints),),
    ).fetchall()
    lane_of = move.lane_of
    served = {lane_of[lane] for _, lane in rows}
    unheld = set(open_lanes(move.connection, move.now, list(served), False))
    ids = [number for number, lane in rows if lane_of[lane] in unheld]
    return take(move, session, ids) if ids else []


def _entries(move: Move, sql: str, **parameters: Any) -> list[DispatchEntry]:
    rows = move.connection.execute(sql, {"now": move.now, **parameters}).fetchall()
    lane_of = move.lane_of
    return [
        DispatchEntry(uid, generation, lane_of[lane], -prio, timedelta(microseconds=delay))
        for uid, generation, lane, prio, delay in rows
    ]


def _count_waiting(move: Move) -> dict[Lane, Depth]:
    rows = move.connection.execute(
        "SELECT lane, sum(phase = 0), sum(phase = 1) FROM holdfast_job WHERE phase <= 1 AND key IS NULL GROUP BY lane"
    ).fetchall()
    lane_of = move.lane_of
    return {lane_of[lane]: Depth(due, later) for lane, due, later in rows}
