"""The task, queue and owner of the jobs that events are about, read in batches and cached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from holdfast.engine.cloudevent import GONE, Subject
from holdfast.engine.job_queries import Page
from holdfast.jobs.job import Event, JobFilter, JobId

#: How many jobs are read at once: their rows may be large.
BATCH = 200
#: How many are cached; when there are more, the older half is dropped.
MOST = 20_000


class JobOwners:
    """A cache of the subjects of events. *read* returns the jobs that match a filter: `app.jobs.list` or `store.jobs`."""

    def __init__(self, read: Callable[..., Awaitable[Page]]) -> None:
        self._read = read
        self._cache: dict[JobId, Subject] = {}

    async def of(self, events: Sequence[Event]) -> dict[JobId, Subject]:
        """Return the subject of every job in *events*, or `GONE` for a job that was removed."""
        wanted = {event.job_id for event in events if event.job_id}
        subjects = {job_id: self._cache[job_id] for job_id in wanted if job_id in self._cache}
        missing = sorted(wanted - subjects.keys())
        for start in range(0, len(missing), BATCH):
            subjects |= await self._look_up(missing[start : start + BATCH])
        return {job_id: subjects.get(job_id, GONE) for job_id in wanted} | {JobId(""): GONE}

    async def _look_up(self, ids: Collection[JobId]) -> dict[JobId, Subject]:
        page = await self._read(JobFilter(ids=tuple(ids)), after=None, limit=len(ids), contents=False)
        subjects = {row.id: Subject(task=row.task, queue=row.queue, owner=row.owner) for row in page.rows}
        if len(self._cache) + len(subjects) > MOST:
            self._cache = dict(list(self._cache.items())[MOST // 2 :])
        self._cache |= subjects
        return subjects
