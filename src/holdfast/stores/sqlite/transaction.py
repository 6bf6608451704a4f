"""The transaction of a move on SQLite, as hooks and tables see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.engine.ports import JobFacts, Row
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.phases import STATES
from holdfast.stores.sqlite.times import moment

if TYPE_CHECKING:
    from holdfast.stores.sqlite.move import Move

_JOBS = """SELECT j.uid, l.task, l.queue, j.owner, j.generation, j.phase
  FROM holdfast_job j JOIN holdfast_lane l ON l.id = j.lane WHERE j.uid IN (SELECT value FROM json_each(?))"""


class SqliteTransaction:
    """The port `Transaction` over a move."""

    dialect = "sqlite"

    def __init__(self, move: Move) -> None:
        self._move = move

    async def execute(self, sql: str, *params: Any) -> Sequence[Row]:
        return self._move.rows(sql, *params)

    async def now(self) -> datetime:
        return moment(self._move.now)

    async def jobs(self, ids: Collection[JobId]) -> list[JobFacts]:
        rows = self._move.rows(_JOBS, to_json(list(ids)))
        return [JobFacts._make((*facts, STATES[phase])) for *facts, phase in rows]

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        return self._move.note(job_id, kind, name, meta)

    async def record(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        self._move.record_no_job(kind, meta)
