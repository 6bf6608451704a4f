"""Handlers that wait for other jobs (`await handle.result()`). When they hold every slot, none is left to run those jobs in.

The worker notices that, logs it once with the ways out, and records it with its session, where `doctor` and `explain`
find it. It changes nothing: a handler's own timeout, or another worker, may still end the wait.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from holdfast.domain.job import JobId, Lane, Session
from holdfast.engine.engine import Engine
from holdfast.logs import Log
from holdfast.worker.running import RunningAttempts
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

HINT = (
    "raise the concurrency, give the jobs that are waited for a queue and a worker of their own,"
    " or raise Snooze until they are done"
)


class DeadlockDetector:
    """*queues* are those that the worker serves; None: all."""

    def __init__(
        self, engine: Engine, under_way: RunningAttempts, slots: Slots, queues: AbstractSet[str] | None
    ) -> None:
        self._engine, self._under_way, self._slots, self._queues = engine, under_way, slots, queues
        self._seen = 0  #: at the last look; what is so at two of them in a row is no coincidence
        self._reported: tuple[Session | None, int] = (None, 0)
        self._logged = False

    async def look(self, session: Session) -> None:
        """Report a change to the store, which is rare; called about once a second."""
        awaited = self.awaited()
        seen, self._seen = self._seen, len(awaited)
        handlers = len(awaited) if seen else 0
        if self._reported == (session, handlers) or (not handlers and self._reported[0] is not session):
            return
        await self._engine.store.report_waiting(session, handlers)
        self._reported = session, handlers
        if handlers and not self._logged:
            self._logged = True
            log.warning("worker.deadlocked", slots=handlers, waiting_for=awaited[0], hint=HINT)

    def awaited(self) -> list[JobId]:
        """Return a queued job for each handler, if all slots are held by handlers that wait for one; else none."""
        found = [
            job_id
            for running in self._under_way.running.values()
            if (job_id := self._first(list((running.job.awaits or {}).items()))) is not None
        ]
        return found if len(found) >= self._slots.count and len(found) == self._under_way.count else []

    def _first(self, waits: list[tuple[JobId, Lane]]) -> JobId | None:
        """Return one that this worker would run."""
        for job_id, lane in waits:
            if lane.task in self._engine.tasks and (self._queues is None or lane.queue in self._queues):
                return job_id
        return None
