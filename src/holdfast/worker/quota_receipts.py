"""What first attempts under way have taken from quotas: it is given back if the attempt is.

An attempt that is released (at a shutdown, as a failed trial, by `Snooze` or a breaker that opened under it) is made again
as the first one, and charged again. So what it had taken is given back when the store has taken the release.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.job import Lease, Settlement
from holdfast.domain.verdict import Release
from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import SettlementStatus, Store
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.worker")

#: How many are remembered: an attempt whose lease was lost is never settled here.
MOST = 10_000
#: What is given back always fits.
_ANY = 1 << 53


class QuotaReceipts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._paid: dict[Lease, list[Charge]] = {}

    def keep(self, lease: Lease, charges: Sequence[Charge]) -> None:
        """Remember what the attempt under *lease* was charged. Rates are of starts: they are not given back."""
        paid = [one for one in charges if one.period != "rate"]
        if paid:
            self._paid[lease] = paid
            if len(self._paid) > MOST:
                del self._paid[next(iter(self._paid))]

    async def settled(self, settlements: Sequence[Settlement], answers: Sequence[SettlementStatus]) -> None:
        """Forget those that have ended; give back what the released ones had taken."""
        if not self._paid:
            return
        back: list[list[Charge]] = []
        for settlement, answer in zip(settlements, answers, strict=True):
            paid = self._paid.pop(settlement.lease, None)
            if paid and isinstance(settlement.verdict, Release) and answer is SettlementStatus.APPLIED:
                back.append([one._replace(amount=-one.amount, limit=_ANY) for one in paid])
        if not back:
            return
        try:
            await self._store.charge(back)
        except (
            StoreError
        ) as error:  # they are charged once more when they start again: no reason to stop settling
            log.warning("quota.refund_failed", jobs=len(back), reason=str(error))
