"""Which lanes a worker serves: its tasks in their own queues, and in any other queue they were sent to."""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from holdfast.domain.job import Lane
from holdfast.engine.engine import Engine
from holdfast.logs import Log

log = Log("holdfast.worker")

#: How often a worker looks whether jobs wait for tasks that it does not have.
WARN_EVERY = 30.0
#: Up to this many lanes are all served. Of more, those that have jobs, and for this many seconds those that had some.
MANY, SERVE_FOR = 1000, 3600.0


class ServedLanes:
    """*queues* None: all."""

    def __init__(self, engine: Engine, queues: AbstractSet[str] | None) -> None:
        self._engine, self._queues = engine, queues
        self._warned: set[str] = set()
        self._warn_at = -math.inf
        self._used: dict[Lane, float] | None = (
            None  #: when each last had jobs, oldest first; None: there are not many
        )

    async def lanes(self) -> list[Lane]:
        """Those to claim from. Where very many were ever used: those that have jobs now, or had some lately."""
        if self._used is None:
            found = await self._engine.store.lanes()
            if len(found) <= MANY:
                return await self._served(found)
            self._used = {}
        return await self._served(self._lately(await self._engine.store.waiting_lanes(), self._used))

    async def all_lanes(self) -> list[Lane]:
        """All that were ever used, whether or not they have jobs."""
        return await self._served(await self._engine.store.lanes())

    def _lately(self, waiting: AbstractSet[Lane], used: dict[Lane, float]) -> set[Lane]:
        now = self._engine.clock.monotonic()
        for lane in waiting:
            used.pop(lane, None)  # the latest last
            used[lane] = now
        while used and (len(used) > max(MANY, len(waiting)) or next(iter(used.values())) < now - SERVE_FOR):
            del used[next(iter(used))]
        return set(used)

    async def _served(self, found: AbstractSet[Lane]) -> list[Lane]:
        names = set(self._engine.tasks)
        ours = {task.name for task in self._engine.tasks.values() if task.policy.execute != "external"}
        own = {task.lane for task in self._engine.tasks.values()}
        lanes = own | {lane._replace(fair=True) for lane in own} | found
        await self._warn_of({lane for lane in lanes if lane.task not in names | self._warned})
        return sorted(
            lane
            for lane in lanes
            if lane.task in ours and (self._queues is None or lane.queue in self._queues)
        )

    async def _warn_of(self, strange: set[Lane]) -> None:
        """Say once of each task that is not known here that jobs wait for it. Now and then only: it takes counting."""
        now = self._engine.clock.monotonic()
        if not strange or now < self._warn_at:
            return
        self._warn_at = now + WARN_EVERY
        depths = await self._engine.store.depths(strange)
        unknown = {lane.task for lane, depth in depths.items() if depth}
        if unknown:
            self._warned |= unknown
            hint = "their jobs stay queued for a worker that has them"
            log.warning("task.unknown", tasks=sorted(unknown), hint=hint)
