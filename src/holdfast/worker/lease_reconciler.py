"""What the store says is ours, against what we know of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.domain.job import Lease, Settlement
from holdfast.domain.verdict import Release
from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.running import RunningAttempts
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter

log = Log("holdfast.worker")

#: An attempt that runs longer than this is worth asking the store about: was it cancelled?
WATCH_EVERY = 1.0
#: How long after a claim without an answer its leases may still appear: longer than a statement may take. A look that finds
#: nothing ends no doubt: it may have been answered late itself, and the claim carried out after it.
DOUBT_FOR = 75.0


class LeaseReconciler:
    """Tells handlers whose attempts were taken away, and gives back leases that we hold without knowing, because the answer
    to the claim was lost."""

    def __init__(
        self, engine: Engine, tenure: WorkerSession, under_way: RunningAttempts, settler: SettlementWriter
    ) -> None:
        self._engine, self._tenure, self._under_way, self._settler = engine, tenure, under_way, settler
        self._doubt_until = -math.inf
        self._claims: set[int] = set()  #: those on their way, by number
        self._last_claim = 0
        self._suspects: dict[Lease, int] = {}  #: held and unknown, and the last claim when that was seen

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Around a claim, until what it brought is known here."""
        self._last_claim += 1
        number = self._last_claim
        self._claims.add(number)
        try:
            yield
        finally:
            self._claims.discard(number)

    def doubt(self) -> None:
        """A claim's answer was lost: leases may be ours that we do not know."""
        self._doubt_until = self._engine.clock.monotonic() + DOUBT_FOR

    async def run(self) -> None:
        while True:
            await self._engine.clock.sleep(WATCH_EVERY)
            now, session = self._engine.clock.monotonic(), self._tenure.session
            old = [r for r in self._under_way.running.values() if now - r.started > WATCH_EVERY]
            if session is None or not (old or self._suspects or now < self._doubt_until):
                continue
            try:
                held = await self._engine.store.held(session)
            except StoreError:
                continue  # the heartbeat decides whether we may go on
            except Exception:  # a bug of ours must not end the watch
                log.exception("lease_check.failed")
                continue
            for running in old:
                if running.claimed.lease not in held and not running.job.completed:
                    log.info("job.lease_lost", job_id=running.job.id, epoch=running.job.epoch)
                    running.end("lost")
            self._give_back_unknown(held)

    def _give_back_unknown(self, held: set[Lease]) -> None:
        """Unless a claim that may bring it is still on its way: however slow that is, its job would run here and elsewhere."""
        under_way = self._under_way
        unknown = held - under_way.running.keys() - under_way.ending - self._settler.leases
        for lease in sorted(unknown & self._suspects.keys()):
            if all(claim > self._suspects[lease] for claim in self._claims):
                log.warning("claim.response_lost", job_id=lease.job_id, epoch=lease.epoch)
                self._settler.put(Settlement(lease, Release(reason="the answer to the claim was lost")))
        self._suspects = {lease: self._suspects.get(lease, self._last_claim) for lease in unknown}
