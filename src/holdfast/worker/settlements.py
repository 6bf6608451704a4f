"""The group writer of a worker: it sends the settlements of finished attempts to the store in batches.

While the store is unavailable, settlements wait and are sent again, which the lease's epoch makes harmless.
They are dropped only when the session has ended, because then the store has given the jobs to other workers.

A settlement that is refused (a hook raised, or the store cannot hold it) must neither stop the others nor be
sent forever. It is sent alone first, and then with another verdict in ASCII text, which any store can hold.

The writer also refunds what released attempts were charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import Charge
from holdfast.engine.observers import End
from holdfast.engine.ports import SettlementStatus, Store
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.jobs.job import Claimed, Lease, Settlement
from holdfast.jobs.judgements import outcome_of
from holdfast.jobs.verdict import Release, RetryAfter, Verdict
from holdfast.logging import Log

log = Log("holdfast.worker")

MOST_AT_ONCE = 1000
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
#: How many receipts are remembered. The bound is needed because an attempt whose lease was lost is never
#: settled here.
MOST_RECEIPTS = 10_000
#: The limit of a refund: it always fits.
_ANY_LIMIT = 1 << 53


class SettlementWriter:
    """Sends settlements to the store in the order in which they were put.

    Args:
        engine: The engine whose store takes the settlements.
        settled: Called after each batch.
        refused: Returns the verdict for a job whose settlement was refused, given the reason.
    """

    def __init__(
        self,
        engine: Engine,
        settled: Callable[[], None],
        refused: Callable[[Claimed, str], Verdict],
    ) -> None:
        self._engine, self._settled, self._refused = engine, settled, refused
        self._store, self._clock, self._observers = engine.store, engine.clock, engine.observers
        self.receipts = QuotaReceipts(engine.store)  #: what running attempts were charged
        self._waiting: list[End] = []
        self._sending: list[End] = []
        self._wakeup = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._abandoned = False
        self.backlog = 0

    @property
    def leases(self) -> set[Lease]:
        """The leases of all settlements that the store has not answered."""
        return {settlement.lease for settlement, _ in (*self._sending, *self._waiting)}

    def put(self, settlement: Settlement, claimed: Claimed | None = None) -> None:
        """Queue a settlement. *claimed* is its job, if observers and a refusal should know it."""
        self.backlog += 1
        self._waiting.append((settlement, claimed))
        self._idle.clear()
        self._wakeup.set()

    def give_back(self, claimed: Claimed) -> None:
        """Release a job whose attempt was not started or will not be awaited. It gets its attempt back."""
        self.put(unstarted(claimed, Release()))

    async def run(self) -> None:
        """Send queued settlements until the task is cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                self._sending = batch
                await self._send(batch)
                self._sending = []
                self.backlog -= len(batch)
                self._settled()
            self._idle.set()

    async def flushed(self) -> None:
        """Wait until no settlement is queued or being sent."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Stop resending: the session has ended, so the store refuses these settlements anyway."""
        self._abandoned = True

    def renew(self) -> None:
        """Resend again from now on: a new session has begun."""
        self._abandoned = False

    async def _send(self, batch: Sequence[End]) -> None:
        try:
            await self._settle(batch)
        except Exception as error:  # a settlement is refused: a hook raised, or the store cannot hold it
            if len(batch) > 1:
                for one in batch:
                    await self._send([one])
            else:
                await self._settle_otherwise(*batch[0], error)

    async def _settle_otherwise(
        self, settlement: Settlement, claimed: Claimed | None, error: Exception
    ) -> None:
        """Settle a job whose settlement was refused: as a failure that says so, else as released."""
        job_id, reason = settlement.lease.job_id, f"{type(error).__name__}: {error}"
        verdicts: list[Verdict] = [Release(timedelta(minutes=1), "its settlement was refused")]
        if claimed is not None:
            verdicts.insert(0, self._refused(claimed, reason))
        while not self._abandoned:
            for verdict in verdicts:
                log.warning("settlement.refused", job_id=job_id, reason=reason, instead=outcome_of(verdict))
                try:
                    return await self._settle([(settlement._replace(verdict=verdict), claimed)])
                except Exception as again:
                    reason = f"{type(again).__name__}: {again}"
            # Both were refused, so the fault is the store's and not the job's.
            await self._clock.sleep(LONGEST_PAUSE)
        return None

    async def _settle(self, batch: Sequence[End]) -> None:
        """Send *batch* until the store answers or the session has ended."""
        pause, settlements = FIRST_PAUSE, [settlement for settlement, _ in batch]
        while True:
            try:
                answers = await self._store.settle(settlements)
                await self.receipts.settled(settlements, answers)
                self._expect(settlements)
                self._log_late(settlements, answers)
                if self._observers.any:
                    self._observers.settled(batch, answers)
                return None
            except StoreUnavailable as error:
                if self._abandoned:
                    return log.warning("settlement.abandoned", jobs=len(batch), reason=str(error))
                log.warning("settlement.retrying", jobs=len(batch), reason=str(error), retry_in_s=pause)
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def _expect(self, batch: Sequence[Settlement]) -> None:
        """Note when the next of these jobs is due.

        This happens after the write, so that it is stored by then.
        """
        delays = [one.verdict.delay for one in batch if isinstance(one.verdict, (RetryAfter, Release))]
        if delays:
            self._engine.recovery.expect(min(delays))

    def _log_late(self, batch: Sequence[Settlement], answers: Sequence[SettlementStatus]) -> None:
        if any(answer in (SettlementStatus.LATE, SettlementStatus.STALE) for answer in answers):
            for settlement, answer in zip(batch, answers, strict=True):
                if answer in (SettlementStatus.LATE, SettlementStatus.STALE):
                    log.info(
                        "job.outcome_late",
                        job_id=settlement.lease.job_id,
                        epoch=settlement.lease.epoch,
                        answer=str(answer),
                    )


def unstarted(claimed: Claimed, verdict: Verdict) -> Settlement:
    """Return the settlement of a job whose attempt was not started. It cost nothing."""
    return Settlement(
        claimed.lease, verdict, claimed.attempt, lane=claimed.lane, waited=claimed.waited, cost=0.0
    )


class QuotaReceipts:
    """The quota charges of running first attempts, refunded when an attempt is released.

    An attempt that is released (at a shutdown, as a failed trial, by `Snooze` or by a breaker that opened
    meanwhile) starts again as the first one and is charged again. So its charges are refunded once the store
    has applied the release.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paid: dict[Lease, list[Charge]] = {}

    def keep(self, lease: Lease, charges: Sequence[Charge]) -> None:
        """Remember what the attempt under *lease* was charged. Rates count starts: they are not refunded."""
        paid = [one for one in charges if one.period != "rate"]
        if paid:
            self._paid[lease] = paid
            if len(self._paid) > MOST_RECEIPTS:
                del self._paid[next(iter(self._paid))]

    async def settled(self, settlements: Sequence[Settlement], answers: Sequence[SettlementStatus]) -> None:
        """Forget the charges of these settled attempts, after refunding those that were released."""
        if not self._paid:
            return
        refunds: list[list[Charge]] = []
        for settlement, answer in zip(settlements, answers, strict=True):
            paid = self._paid.pop(settlement.lease, None)
            if paid and isinstance(settlement.verdict, Release) and answer is SettlementStatus.APPLIED:
                refunds.append([one._replace(amount=-one.amount, limit=_ANY_LIMIT) for one in paid])
        if not refunds:
            return
        try:
            await self._store.lanes.charge(refunds)
        except StoreError as error:  # the jobs are charged twice, which must not stop the settlements
            log.warning("quota.refund_failed", jobs=len(refunds), reason=str(error))
