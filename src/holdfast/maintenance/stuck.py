"""Attempts that run on for too long while their worker lives: reported once each, or reclaimed, as their task says."""

from __future__ import annotations

from holdfast.domain.duration import format_duration
from holdfast.domain.job import Lease
from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.logs import Log

log = Log("holdfast.maintenance")

LOOK_EVERY = 60.0
_QUICKEST = 0.05


class StuckSweep:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._told: set[Lease] = set()  #: what this process has reported, while it lasts

    @property
    def every(self) -> float:
        """As the settings say; else so often that an attempt is found soon after it became stuck, and no more often."""
        if (said := self._engine.settings.stuck_every) is not None:
            return said.total_seconds()
        shortest = min((most.total_seconds() for most in self._engine.stuck_limits().values()), default=60.0)
        return min(max(shortest / 4, _QUICKEST), LOOK_EVERY)

    async def run(self) -> None:
        await self._report()
        await self._retry()

    async def _report(self) -> None:
        limits = self._engine.stuck_limits("report")
        stuck = await self._engine.store.stuck(limits, BATCH) if limits else []
        for one in stuck:
            if one.lease not in self._told:
                log.warning(
                    "job.stuck",
                    job_id=one.lease.job_id,
                    task=one.lane.task,
                    attempt=one.attempt,
                    worker=one.worker,
                    longer_than=format_duration(limits[one.lane.task]),
                )
        self._told = {one.lease for one in stuck}

    async def _retry(self) -> None:
        """One batch: what is left waits for the next sweep, as the other duties would have to wait for it."""
        limits = self._engine.stuck_limits("retry")
        stuck = await self._engine.store.stuck(limits, self._engine.settings.stuck_batch) if limits else []
        for one in stuck:
            log.warning("job.stuck", job_id=one.lease.job_id, task=one.lane.task, attempt=one.attempt,
                        worker=one.worker, longer_than=format_duration(limits[one.lane.task]), reclaimed=True)  # fmt: skip
        if stuck:
            await self._engine.reclaim_stuck(stuck, limits)
