"""External tasks on the memory store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.engine.tables.sql import fetch
from holdfast.jobs.external_task import WaitingExternalTask, external_task_id
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import State
from holdfast.outbox.model import NewMessage
from holdfast.stores.memory.database import Database
from holdfast.stores.memory.lanes import open_lanes
from holdfast.stores.memory.tables import Job
from holdfast.stores.sqlite.external_tasks import KNOWN
from holdfast.stores.sqlite.messages import publish


class MemoryExternalTasks:
    def __init__(self, database: Database) -> None:
        self._database, self._tables = database, database.tables

    async def now(self) -> datetime:
        return self._tables.clock.now()

    async def waiting(self, job_ids: Collection[JobId], tasks: Collection[str]) -> list[WaitingExternalTask]:
        found = (self._tables.jobs[job_id] for job_id in job_ids if job_id in self._tables.jobs)
        return [self._shaped(job) for job in _waiting(found, tasks)]

    async def newly_due(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        return self._page(filter(_may_be_unpublished, self._in_line(tasks)), after, limit)

    async def unpublished(self, tasks: Collection[str], after: str, limit: int) -> list[WaitingExternalTask]:
        new = {
            external_task_id(job.id, job.generation): job for job in self._in_line(tasks) if job.attempt == 0
        }
        known = await self.known(new)
        return self._page((job for name, job in new.items() if name not in known), after, limit)

    async def overdue(
        self, tasks: Mapping[str, timedelta], after: str, limit: int
    ) -> list[WaitingExternalTask]:
        now = self._tables.clock.now()
        late = (job for job in self._in_line(tasks) if _since(job) <= now - tasks[job.lane.task])
        return self._page(late, after, limit)

    async def known(self, message_ids: Collection[str]) -> set[str]:
        rows = await fetch(self._database.transaction(), KNOWN, list(message_ids))
        return {name for (name,) in rows}

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        publish(self._database.move(), messages)

    def _in_line(self, tasks: Collection[str]) -> Iterable[Job]:
        return (job for job in _waiting(self._tables.jobs.values(), tasks) if not job.deferred)

    def _page(self, jobs: Iterable[Job], after: str, limit: int) -> list[WaitingExternalTask]:
        found = sorted((job for job in jobs if job.id > after), key=lambda job: job.id)
        return [self._shaped(job) for job in found[:limit]]

    def _shaped(self, job: Job) -> WaitingExternalTask:
        return WaitingExternalTask(
            job.id, job.lane.task, job.generation, job.attempt, job.payload, job.spec.version, job.spec.trace,
            since=_since(job), due=not job.deferred and bool(open_lanes(self._database, [job.lane], trial=False)),
            deadline=job.deadline_at,
        )  # fmt: skip


def _waiting(jobs: Iterable[Job], tasks: Collection[str]) -> Iterable[Job]:
    return (job for job in jobs if job.state is State.QUEUED and job.lane.task in tasks)


def _since(job: Job) -> datetime:
    return max(job.updated_at, job.run_at)


def _may_be_unpublished(job: Job) -> bool:
    if job.attempt == 0:
        return job.generation > 1 or job.run_at > job.queued_at
    last = job.attempts.get(job.epoch)
    return last is not None and last.outcome in ("reclaimed", "retry")
