"""The lanes that a worker serves: its tasks in their own queues and in all others they were sent to."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from holdfast.engine.engine import Engine
from holdfast.jobs.job import Lane
from holdfast.logging import Log

log = Log("holdfast.worker")

#: How often, in seconds, a worker checks for queued jobs of tasks that it does not have.
WARN_EVERY = 30.0
#: Up to `MANY` lanes are all served. Of more, only those that have jobs now or had some in the last
#: `SERVE_FOR` seconds.
MANY, SERVE_FOR = 1000, 3600.0


class ServedLanes:
    """Finds the lanes to claim from, limited to *queues* unless that is None."""

    def __init__(self, engine: Engine, queues: AbstractSet[str] | None) -> None:
        self._engine, self._queues = engine, queues
        self._warned: set[str] = set()
        self._warn_at = -math.inf
        #: When each lane last had jobs, oldest first. None while there are at most `MANY` lanes.
        self._last_used: dict[Lane, float] | None = None

    async def lanes(self) -> list[Lane]:
        """Return the lanes to claim from.

        Of more than `MANY`, only those with jobs now or recently are returned.
        """
        if self._last_used is None:
            known = await self._engine.store.lanes.all()
            if len(known) <= MANY:
                return await self._served(known)
            self._last_used = {}
        return await self._served(
            self._recently_used(await self._engine.store.lanes.waiting(), self._last_used)
        )

    async def all_lanes(self) -> list[Lane]:
        """Return all served lanes that were ever used, with or without jobs."""
        return await self._served(await self._engine.store.lanes.all())

    def _recently_used(self, waiting: AbstractSet[Lane], last_used: dict[Lane, float]) -> set[Lane]:
        now = self._engine.clock.monotonic()
        for lane in waiting:
            last_used.pop(lane, None)  # so that the most recently used lane is last
            last_used[lane] = now
        while last_used and (
            len(last_used) > max(MANY, len(waiting)) or next(iter(last_used.values())) < now - SERVE_FOR
        ):
            del last_used[next(iter(last_used))]
        return set(last_used)

    async def _served(self, known: AbstractSet[Lane]) -> list[Lane]:
        names = set(self._engine.tasks)
        ours = {task.name for task in self._engine.tasks.values() if task.policy.execute != "external"}
        own = {task.lane for task in self._engine.tasks.values()}
        lanes = own | {lane._replace(fair=True) for lane in own} | known
        await self._warn_about({lane for lane in lanes if lane.task not in names | self._warned})
        return sorted(
            lane
            for lane in lanes
            if lane.task in ours and (self._queues is None or lane.queue in self._queues)
        )

    async def _warn_about(self, lanes: set[Lane]) -> None:
        """Log once for each unknown task that its jobs wait.

        This counts jobs, so it runs at most every `WARN_EVERY`.
        """
        now = self._engine.clock.monotonic()
        if not lanes or now < self._warn_at:
            return
        self._warn_at = now + WARN_EVERY
        depths = await self._engine.store.lanes.depths(lanes)
        unknown = {lane.task for lane, depth in depths.items() if depth}
        if unknown:
            self._warned |= unknown
            hint = "their jobs stay queued for a worker that has them"
            log.warning("task.unknown", tasks=sorted(unknown), hint=hint)
