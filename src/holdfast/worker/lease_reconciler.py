"""Reconcile the leases that the store records for this worker with the attempts that run here."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.jobs.job import Lease, Settlement
from holdfast.jobs.verdict import Release
from holdfast.logging import Log
from holdfast.worker.claiming import Claimer
from holdfast.worker.running import RunningAttempts
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter

log = Log("holdfast.worker")

#: How often to reconcile. An attempt that has run longer than this may have been cancelled in the store.
WATCH_EVERY = 1.0
#: How long the leases of an unanswered claim may still appear: longer than a statement may take. A check that
#: finds none does not end the doubt: the claim may have been carried out after it.
DOUBT_FOR = 75.0


class LeaseReconciler:
    """Ends attempts whose lease was lost, and releases leases that this worker does not know.

    An unknown lease comes from a claim whose answer was lost.
    """

    def __init__(
        self,
        engine: Engine,
        worker_session: WorkerSession,
        running_attempts: RunningAttempts,
        settlements: SettlementWriter,
        claimer: Claimer,
    ) -> None:
        self._engine, self._worker_session, self._running = engine, worker_session, running_attempts
        self._settlements, self._claimer = settlements, claimer
        #: unknown leases, each with the newest claim when it was first seen
        self._unknown_since: dict[Lease, int] = {}

    async def run(self) -> None:
        """Reconcile every `WATCH_EVERY` seconds, forever."""
        while True:
            await self._engine.clock.sleep(WATCH_EVERY)
            now, session = self._engine.clock.monotonic(), self._worker_session.session
            long_running = [r for r in self._running.running.values() if now - r.started > WATCH_EVERY]
            in_doubt = now < self._claimer.answer_lost_at + DOUBT_FOR
            if session is None or not (long_running or self._unknown_since or in_doubt):
                continue
            try:
                held = await self._engine.store.held(session)
            except StoreError:
                continue  # the heartbeat decides whether we may go on
            except Exception:  # a bug here must not end the loop
                log.exception("lease_check.failed")
                continue
            for running in long_running:
                if running.claimed.lease not in held and not running.job.completed:
                    log.info("job.lease_lost", job_id=running.job.id, epoch=running.job.epoch)
                    running.end("lost")
            self._give_back_unknown(held)

    def _give_back_unknown(self, held: set[Lease]) -> None:
        """Release unknown leases, except those an unanswered claim may bring: their jobs would run twice."""
        known = self._running.running.keys() | self._running.ending | self._settlements.leases
        unknown = held - known
        for lease in sorted(unknown & self._unknown_since.keys()):
            if all(claim > self._unknown_since[lease] for claim in self._claimer.unanswered):
                log.warning("claim.response_lost", job_id=lease.job_id, epoch=lease.epoch)
                lost = Release(reason="the answer to the claim was lost")
                self._settlements.put(Settlement(lease, lost, cost=0.0))
        newest = self._claimer.newest_claim
        self._unknown_since = {lease: self._unknown_since.get(lease, newest) for lease in unknown}
