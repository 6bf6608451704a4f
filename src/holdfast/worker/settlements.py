"""The group writer of a worker: finished attempts travel to the store together, and none is given up lightly.

While the store is away, settlements wait and are sent again: the lease's epoch makes that harmless. They are given
up only when the session has ended, because then the store has given the jobs away.

One that is refused (a hook raised, or the store cannot hold it) must neither stop the others nor be sent for ever: it is
sent alone, and then its job comes to another end, told in words that any store can hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.domain.judgements import outcome_of
from holdfast.domain.verdict import Release, RetryAfter, Verdict
from holdfast.engine.engine import Engine
from holdfast.engine.observers import End
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import StoreUnavailable
from holdfast.logs import Log
from holdfast.worker.quota_receipts import QuotaReceipts

log = Log("holdfast.worker")

MOST_AT_ONCE = 1000
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class SettlementWriter:
    def __init__(
        self,
        engine: Engine,
        settled: Callable[[], None],
        refused: Callable[[Claimed, str], Verdict],
    ) -> None:
        self._engine, self._settled, self._refused = engine, settled, refused
        self._store, self._clock, self._observers = engine.store, engine.clock, engine.observers
        self.receipts = QuotaReceipts(engine.store)  #: of what attempts under way were charged
        self._waiting: list[End] = []
        self._sending: list[End] = []
        self._bell = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._abandoned = False
        self.backlog = 0

    @property
    def leases(self) -> set[Lease]:
        """Whose ends are on their way."""
        return {settlement.lease for settlement, _ in (*self._sending, *self._waiting)}

    def put(self, settlement: Settlement, claimed: Claimed | None = None) -> None:
        self.backlog += 1
        self._waiting.append((settlement, claimed))
        self._idle.clear()
        self._bell.set()

    def give_back(self, claimed: Claimed) -> None:
        """It was not begun, or will not be ended here: back into line, with its attempt."""
        self.put(Settlement(claimed.lease, Release(), claimed.attempt))

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

    async def _send(self, batch: Sequence[End]) -> None:
        try:
            await self._settle(batch)
        except Exception as error:  # something in it is refused: a hook raised, or the store cannot hold it
            if len(batch) > 1:
                for one in batch:
                    await self._send([one])
            else:
                await self._send_otherwise(*batch[0], error)

    async def _send_otherwise(
        self, settlement: Settlement, claimed: Claimed | None, error: Exception
    ) -> None:
        """This end is refused, so the job must come to another: to a failure that says so, or back into line."""
        job_id, reason = settlement.lease.job_id, f"{type(error).__name__}: {error}"
        ways: list[Verdict] = [Release(timedelta(minutes=1), "its end was refused")]
        if claimed is not None:
            ways.insert(0, self._refused(claimed, reason))
        while not self._abandoned:
            for verdict in ways:
                log.warning("settlement.refused", job_id=job_id, reason=reason, instead=outcome_of(verdict))
                try:
                    return await self._settle([(settlement._replace(verdict=verdict), claimed)])
                except Exception as again:
                    reason = f"{type(again).__name__}: {again}"
            await self._clock.sleep(
                LONGEST_PAUSE
            )  # nothing at all is taken: it is the store's trouble, not the job's
        return None

    async def _settle(self, batch: Sequence[End]) -> None:
        """Send until the store has answered."""
        pause, settlements = FIRST_PAUSE, [settlement for settlement, _ in batch]
        while True:
            try:
                answers = await self._store.settle(settlements)
                await self.receipts.settled(settlements, answers)
                self._expect(settlements)
                self._tell(settlements, answers)
                return self._observers.settled(batch, answers)
            except StoreUnavailable as error:
                if self._abandoned:
                    return log.warning("settlement.abandoned", jobs=len(batch), reason=str(error))
                log.warning("settlement.retrying", jobs=len(batch), reason=str(error), retry_in_s=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def _expect(self, batch: Sequence[Settlement]) -> None:
        """Expect the next due job only now: a look when it is due must find it stored."""
        delays = [one.verdict.delay for one in batch if isinstance(one.verdict, (RetryAfter, Release))]
        if delays:
            self._engine.expect(min(delays))

    def _tell(self, batch: Sequence[Settlement], answers: Sequence[SettlementStatus]) -> None:
        if any(answer in (SettlementStatus.LATE, SettlementStatus.STALE) for answer in answers):
            for settlement, answer in zip(batch, answers, strict=True):
                if answer in (SettlementStatus.LATE, SettlementStatus.STALE):
                    log.info(
                        "job.outcome_late",
                        job_id=settlement.lease.job_id,
                        epoch=settlement.lease.epoch,
                        answer=str(answer),
                    )
