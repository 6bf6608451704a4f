"""Whose jobs events are about: looked up in batches, and remembered, because an owner does not change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.domain.cloudevent import GONE, Subject
from holdfast.domain.job import Event, JobFilter, JobId
from holdfast.engine.ports import Store

#: How many jobs are read at once: their rows may be large.
BATCH = 200
#: How many are cached; when there are more, the older half is dropped.
MOST = 20_000


class JobOwners:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[JobId, Subject] = {}

    async def of(self, events: Sequence[Event]) -> dict[JobId, Subject]:
        """The subject of every job that these *events* are about; `GONE` of those that were removed."""
        wanted = {event.job_id for event in events if event.job_id}
        found = {job_id: self._known[job_id] for job_id in wanted if job_id in self._known}
        missing = sorted(wanted - found.keys())
        for start in range(0, len(missing), BATCH):
            found |= await self._look_up(missing[start : start + BATCH])
        return {job_id: found.get(job_id, GONE) for job_id in wanted} | {JobId(""): GONE}

    async def _look_up(self, ids: Collection[JobId]) -> dict[JobId, Subject]:
        page = await self._store.jobs(JobFilter(ids=tuple(ids)), after=None, limit=len(ids), contents=False)
        found = {row.id: Subject(task=row.task, queue=row.queue, owner=row.owner) for row in page.rows}
        if len(self._known) + len(found) > MOST:
            self._known = dict(list(self._known.items())[MOST // 2 :])
        self._known |= found
        return found
