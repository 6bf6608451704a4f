"""Jobs that a broker hands out. `holdfast.engine.dispatch` has the contract."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.jobs.job import Claimed, JobId, Lane, Session
from holdfast.jobs.moves import State
from holdfast.stores.memory.database import Database
from holdfast.stores.memory.intake import claim_now, ready_jobs
from holdfast.stores.memory.lanes import open_lanes
from holdfast.stores.memory.tables import Job, Tables


class Dispatch:
    def __init__(self, database: Database) -> None:
        self._database, self._tables = database, database.tables

    async def claim_jobs(self, session: Session, hints: Collection[DispatchHint]) -> list[Claimed]:
        tables = self._tables
        if not tables.is_live(session):
            return []
        unheld = open_lanes(self._database, list(tables.lanes), trial=False)

        def claim() -> list[Claimed]:
            now = tables.clock.now()
            due = {
                job.id: job for job in ready_jobs(tables, now) if job.spec.key is None and job.lane in unheld
            }
            found = [due[hint.job_id] for hint in dict.fromkeys(hints) if _is_in(due.get(hint.job_id), hint)]
            return [claim_now(tables, job, session, now) for job in found]

        return self._database.commit(claim)

    async def waiting(self, ids: Collection[JobId]) -> list[DispatchEntry]:
        jobs = self._tables.jobs
        return _entries(self._tables, (jobs[one] for one in dict.fromkeys(ids) if one in jobs))

    async def all_waiting(self, *, after: JobId | None, limit: int) -> list[DispatchEntry]:
        behind = [job for job in self._tables.jobs.values() if after is None or job.id > after]
        return _entries(self._tables, sorted(behind, key=lambda job: job.id))[:limit]

    async def due_soon(self, within: timedelta, limit: int) -> list[DispatchEntry]:
        entries = _entries(self._tables, (job for job in self._tables.jobs.values() if job.deferred))
        return sorted(
            (entry for entry in entries if timedelta() < entry.delay <= within), key=lambda entry: entry.delay
        )[:limit]

    async def count_waiting(self) -> dict[Lane, Depth]:
        depths: dict[Lane, Depth] = {}
        for entry in _entries(self._tables, self._tables.jobs.values()):
            due, later = depths.get(entry.lane, Depth(0, 0))
            depths[entry.lane] = Depth(due + (not entry.delay), later + bool(entry.delay))
        return depths


def _is_in(job: Job | None, hint: DispatchHint) -> bool:
    return job is not None and job.generation == hint.generation


def _entries(tables: Tables, jobs: Iterable[Job]) -> list[DispatchEntry]:
    now = tables.clock.now()
    return [
        DispatchEntry(job.id, job.generation, job.lane, job.spec.priority, max(job.run_at - now, timedelta()))
        for job in jobs
        if job.state is State.QUEUED and job.spec.key is None
    ]
