"""The transaction of a move on the memory store, as hooks and tables see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.engine.ports import JobFacts, Row
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind

if TYPE_CHECKING:
    from holdfast.stores.memory.database import Database


class MemoryTransaction:
    """The port `Transaction`. Its SQL runs on the database in RAM, which holds no jobs."""

    dialect = "sqlite"

    def __init__(self, database: Database) -> None:
        self.database, self._tables = database, database.tables

    async def execute(self, sql: str, *params: Any) -> Sequence[Row]:
        return self.database.execute(sql, params)

    async def now(self) -> datetime:
        return self._tables.clock.now()

    async def jobs(self, ids: Collection[JobId]) -> list[JobFacts]:
        found = [self._tables.jobs[job_id] for job_id in ids if job_id in self._tables.jobs]
        return [
            JobFacts(job.id, job.lane.task, job.lane.queue, job.spec.owner, job.generation, job.state)
            for job in found
        ]

    async def note(self, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
        return self._tables.note(job_id, kind, name, meta)

    async def record(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        self._tables.record_no_job(kind, meta)
