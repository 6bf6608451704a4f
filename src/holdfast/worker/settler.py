"""The group writer of a worker: finished attempts travel to the store together, and none is given up lightly.

While the store is away, settlements wait and are sent again: the lease's epoch makes that harmless. They are given
up only when the session has ended, because then the store has given the jobs away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.domain.job import Lease, Settlement
from holdfast.engine.log import Log
from holdfast.engine.ports import Answer, Clock, Store
from holdfast.errors import StoreError

log = Log("holdfast.worker")

MOST_AT_ONCE = 1000
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class Settler:
    def __init__(self, store: Store, clock: Clock, settled: Callable[[], None]) -> None:
        self._store, self._clock, self._settled = store, clock, settled
        self._waiting: list[Settlement] = []
        self._sending: list[Settlement] = []
        self._bell = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._abandoned = False
        self.backlog = 0

    @property
    def leases(self) -> set[Lease]:
        """Whose ends are on their way."""
        return {settlement.lease for settlement in (*self._sending, *self._waiting)}

    def put(self, settlement: Settlement) -> None:
        self.backlog += 1
        self._waiting.append(settlement)
        self._idle.clear()
        self._bell.set()

    async def run(self) -> None:
        """Send what waits, for ever; the worker's group ends it."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                self._sending = batch
                await self._send(batch)
                self._sending = []
                self.backlog -= len(batch)
                self._settled()
            self._idle.set()

    async def flushed(self) -> None:
        await self._idle.wait()

    def abandon(self) -> None:
        """The session has ended: what could not be sent so far must not be sent for ever."""
        self._abandoned = True

    def renew(self) -> None:
        self._abandoned = False

    async def _send(self, batch: Sequence[Settlement]) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                return self._tell(batch, await self._store.settle(batch))
            except StoreError as error:
                if self._abandoned:
                    log.warning("settle.given_up", jobs=len(batch), reason=str(error))
                    return None
                log.warning("settle.waits", jobs=len(batch), reason=str(error), again_in=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def _tell(self, batch: Sequence[Settlement], answers: Sequence[Answer]) -> None:
        if any(answer in (Answer.LATE, Answer.STALE) for answer in answers):
            for settlement, answer in zip(batch, answers, strict=True):
                if answer in (Answer.LATE, Answer.STALE):
                    log.info(
                        "job.lease_lost",
                        job_id=settlement.lease.job_id,
                        epoch=settlement.lease.epoch,
                        answer=str(answer),
                    )
