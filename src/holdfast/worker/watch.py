"""What the store says is ours, against what we know of."""

from __future__ import annotations

from holdfast.domain.job import Lease, Settlement
from holdfast.domain.verdict import Release
from holdfast.engine.engine import Engine
from holdfast.engine.log import Log
from holdfast.errors import StoreError
from holdfast.worker.settler import Settler
from holdfast.worker.tenure import Tenure
from holdfast.worker.underway import UnderWay

log = Log("holdfast.worker")

#: An attempt that runs longer than this is worth asking the store about: was it cancelled?
WATCH_EVERY = 1.0


class Watch:
    """Tells handlers whose attempts were taken away, and gives back leases that we hold without knowing, because the answer
    to the claim was lost."""

    def __init__(self, engine: Engine, tenure: Tenure, under_way: UnderWay, settler: Settler) -> None:
        self._engine, self._tenure, self._under_way, self._settler = engine, tenure, under_way, settler
        self._in_doubt = False
        self._suspects: set[Lease] = set()

    def doubt(self) -> None:
        """A claim's answer was lost: leases may be ours that we do not know."""
        self._in_doubt = True

    async def run(self) -> None:
        while True:
            await self._engine.clock.sleep(WATCH_EVERY)
            now, session = self._engine.clock.monotonic(), self._tenure.session
            old = [r for r in self._under_way.running.values() if now - r.started > WATCH_EVERY]
            if session is None or not (old or self._in_doubt):
                continue
            try:
                held = await self._engine.store.held(session)
            except StoreError:
                continue  # the heartbeat decides whether we may go on
            except Exception:  # a bug of ours must not end the watch
                log.exception("watch.failed")
                continue
            for running in old:
                if running.claimed.lease not in held and not running.job.completed:
                    log.info("job.taken_away", job_id=running.job.id, epoch=running.job.epoch)
                    running.end("lost")
            self._give_back_unknown(held)

    def _give_back_unknown(self, held: set[Lease]) -> None:
        unknown = held - self._under_way.running.keys() - self._settler.leases
        for lease in sorted(unknown & self._suspects):  # seen twice: no claim can be that long on its way
            log.warning("claim.answer_lost", job_id=lease.job_id, epoch=lease.epoch)
            self._settler.put(Settlement(lease, Release(why="the answer to the claim was lost")))
        self._in_doubt = bool(unknown)
        self._suspects = unknown
