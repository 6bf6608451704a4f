"""Detect a worker whose slots are all held by handlers that wait for other jobs (`await handle.result()`).

No slot is left to run those jobs. The worker logs this once with the ways out and records it with its
session, where `doctor` and `explain` find it. It changes nothing: a handler's own timeout or another worker
may still end the wait.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from holdfast.engine.engine import Engine
from holdfast.jobs.job import JobId, Lane, Session
from holdfast.logging import Log
from holdfast.worker.running import RunningAttempts
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

HINT = (
    "raise the concurrency, give the jobs that are waited for a queue and a worker of their own,"
    " or raise Snooze until they are done"
)


class DeadlockDetector:
    """Detects a deadlock of one worker, which serves *queues*, or all queues if that is None."""

    def __init__(
        self, engine: Engine, running_attempts: RunningAttempts, slots: Slots, queues: AbstractSet[str] | None
    ) -> None:
        self._engine, self._running, self._slots, self._queues = engine, running_attempts, slots, queues
        self._count_before = 0  #: found by the last check; only two checks in a row count as a deadlock
        self._reported: tuple[Session | None, int] = (None, 0)
        self._logged = False

    async def check(self, session: Session) -> None:
        """Check once and report a change to the store. Called about once a second; changes are rare."""
        awaited = self.awaited()
        before, self._count_before = self._count_before, len(awaited)
        handlers = len(awaited) if before else 0
        if self._reported == (session, handlers) or (not handlers and self._reported[0] is not session):
            return
        await self._engine.store.report_waiting(session, handlers)
        self._reported = session, handlers
        if handlers and not self._logged:
            self._logged = True
            log.warning("worker.deadlocked", slots=handlers, waiting_for=awaited[0], hint=HINT)

    def awaited(self) -> list[JobId]:
        """Return one awaited queued job per handler if waiting handlers hold all slots, else none."""
        awaited = [
            job_id
            for running in self._running.running.values()
            if (job_id := self._first_served(list((running.job.awaits or {}).items()))) is not None
        ]
        return awaited if len(awaited) >= self._slots.count and len(awaited) == self._running.count else []

    def _first_served(self, waits: list[tuple[JobId, Lane]]) -> JobId | None:
        """Return the first of these jobs that this worker could run, if any."""
        for job_id, lane in waits:
            if lane.task in self._engine.tasks and (self._queues is None or lane.queue in self._queues):
                return job_id
        return None
