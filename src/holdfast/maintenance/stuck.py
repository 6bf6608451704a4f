"""The maintenance task for attempts that run too long while their worker holds the lease.

Each is reported once or reclaimed, as its task's policy says.
"""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.jobs.job import Lease
from holdfast.logging import Log
from holdfast.values.duration import format_duration

log = Log("holdfast.maintenance")

LONGEST_PAUSE = 60.0
_SHORTEST_PAUSE = 0.05


class StuckSweep:
    """Reports and reclaims stuck attempts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reported: set[Lease] = set()  #: the stuck attempts that this process has reported

    @property
    def every(self) -> float:
        """The seconds between two sweeps: as set, or a quarter of the shortest limit up to `LONGEST_PAUSE`."""
        if (setting := self._engine.settings.stuck_every) is not None:
            return setting.total_seconds()
        shortest = min(
            (limit.total_seconds() for limit in self._engine.recovery.stuck_limits().values()), default=60.0
        )
        return min(max(shortest / 4, _SHORTEST_PAUSE), LONGEST_PAUSE)

    async def run(self) -> None:
        await self._report()
        await self._reclaim()

    async def _report(self) -> None:
        limits = self._engine.recovery.stuck_limits("report")
        stuck = await self._engine.store.stuck(limits, BATCH) if limits else []
        for one in stuck:
            if one.lease not in self._reported:
                log.warning(
                    "job.stuck",
                    job_id=one.lease.job_id,
                    task=one.lane.task,
                    attempt=one.attempt,
                    worker=one.worker,
                    longer_than=format_duration(limits[one.lane.task]),
                )
        self._reported = {one.lease for one in stuck}

    async def _reclaim(self) -> None:
        """Reclaim one batch.

        The rest waits for the next sweep, so that other maintenance tasks get their turn.
        """
        limits = self._engine.recovery.stuck_limits("retry")
        stuck = await self._engine.store.stuck(limits, self._engine.settings.stuck_batch) if limits else []
        for one in stuck:
            log.warning(
                "job.stuck",
                job_id=one.lease.job_id,
                task=one.lane.task,
                attempt=one.attempt,
                worker=one.worker,
                longer_than=format_duration(limits[one.lane.task]),
                reclaimed=True,
            )
        if stuck:
            await self._engine.recovery.reclaim_stuck(stuck, limits)
