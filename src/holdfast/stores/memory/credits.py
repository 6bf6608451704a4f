"""The ledger in dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from datetime import datetime

from holdfast.domain.credit import (
    AVAILABLE,
    EXPIRED,
    SPENT,
    Account,
    CreditHold,
    CreditQuota,
    Grant,
    HoldState,
    LedgerEntry,
    Sold,
)
from holdfast.domain.job import JobId
from holdfast.domain.posting import Posting, Wallet
from holdfast.stores.memory.tables import Tables


class MemoryBooks:
    def __init__(self, tables: Tables) -> None:
        self._tables, self._kept = tables, tables.ledger

    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]:
        jobs = [self._tables.jobs[job_id] for job_id in job_ids if job_id in self._tables.jobs]
        return [Sold(job.id, job.lane.task, job.spec.owner, job.generation, job.state) for job in jobs]

    # -- prices and accounts ----------------------------------------------------------------------------------------
    async def now(self) -> datetime:
        return self._tables.clock.now()

    async def prices(self) -> dict[str, int]:
        return dict(self._kept.prices)

    async def set_price(self, task: str, price: int) -> None:
        self._kept.prices[task] = price

    async def open(self, account: str, now: datetime) -> None:
        self._kept.wallets.setdefault(account, Wallet(account))
        self._kept.created.setdefault(account, now)

    async def set_payer(self, account: str, paid_by: str | None) -> None:
        self._kept.wallets[account].paid_by = paid_by

    async def set_quota(self, account: str, quota: CreditQuota) -> None:
        self._kept.wallets[account].quota = quota

    async def payers(self, owners: Collection[str]) -> dict[str, str]:
        wallets = [self._kept.wallets[owner] for owner in owners if owner in self._kept.wallets]
        return {wallet.id: wallet.paid_by for wallet in wallets if wallet.paid_by is not None}

    async def paid_for(self, account: str) -> list[str]:
        return sorted(wallet.id for wallet in self._kept.wallets.values() if wallet.paid_by == account)[:10]

    # -- writing ----------------------------------------------------------------------------------------------------
    async def lock(self, accounts: Collection[str], grants: Collection[str] = ()) -> dict[str, Wallet]:
        """Copies: what is done to them is nothing until it is written."""
        found = {
            name: deepcopy(self._kept.wallets.get(name)) or Wallet(name, exists=False) for name in accounts
        }
        for grant in self._kept.grants.values():
            if grant.account in found and (grant.remaining or grant.id in grants):
                found[grant.account].grants[grant.id] = grant
        return found

    async def close(
        self, job_ids: Collection[JobId], state: HoldState, now: datetime, *, before: int | None = None
    ) -> list[CreditHold]:
        closed = []
        for key, (hold, was) in self._kept.holds.items():
            if (
                was is HoldState.HELD
                and hold.job_id in job_ids
                and (before is None or hold.generation < before)
            ):
                self._kept.holds[key] = (hold, state)
                closed.append(hold)
        return closed

    async def write(self, page: Posting) -> None:
        for wallet in page.changed_wallets():
            self._kept.wallets[wallet.id] = replace(wallet, grants={})
        for grant in (*page.changed_grants(), *page.new_grants):
            self._kept.grants[grant.id] = page.wallets[grant.account].grants[grant.id]
        for hold in page.holds:
            assert (hold.job_id, hold.generation) not in self._kept.holds
            self._kept.holds[hold.job_id, hold.generation] = (hold, HoldState.HELD)
        for number, entry in enumerate(page.entries, len(self._kept.entries) + 1):
            self._kept.entries.append(replace(entry, number=number, at=page.now))

    # -- looking ----------------------------------------------------------------------------------------------------
    async def has_hold(self, job_id: JobId, generation: int) -> bool:
        return (job_id, generation) in self._kept.holds

    async def holds(self, *, after: int, limit: int) -> list[tuple[int, CreditHold]]:
        held = [
            (number, hold)
            for number, (hold, state) in enumerate(self._kept.holds.values(), 1)
            if state is HoldState.HELD and number > after
        ]
        return held[:limit]

    async def expiring(self, now: datetime, limit: int) -> list[str]:
        due = {g.account for g in self._kept.grants.values() if g.remaining and g.has_expired(now)}
        return sorted(due)[:limit]

    async def grant(self, grant_id: str) -> Grant | None:
        return self._kept.grants.get(grant_id)

    async def has_tx(self, tx: str) -> bool:
        return any(entry.tx == tx for entry in self._kept.entries)

    async def accounts(self, *, after: str, limit: int, now: datetime) -> list[Account]:
        names = sorted(name for name in self._kept.wallets if name > after)[:limit]
        return [self._account(name, now) for name in names]

    async def account(self, account: str, now: datetime) -> Account | None:
        return self._account(account, now) if account in self._kept.wallets else None

    async def entries(
        self, *, account: str | None, job_id: str | None, before: int | None, limit: int
    ) -> list[LedgerEntry]:
        found = [
            entry
            for entry in reversed(self._kept.entries)
            if (account is None or entry.account == account)
            and (job_id is None or entry.job_id == job_id)
            and (before is None or entry.number < before)
        ]
        return found[:limit]

    async def problems(self) -> list[str]:
        sums: dict[str, int] = defaultdict(int)
        for entry in self._kept.entries:
            sums[entry.tx] += entry.amount
        return [f"the entries of {tx} sum to {total}, not to 0" for tx, total in sums.items() if total]

    def _account(self, name: str, now: datetime) -> Account:
        wallet, sums = self._kept.wallets[name], defaultdict[str, int](int)
        for entry in self._kept.entries:
            if entry.account == name:
                sums[entry.bucket] += entry.amount
        grants = {g.id: g for g in self._kept.grants.values() if g.account == name}
        usable = replace(wallet, grants=grants).usable(now)
        available = sum(grant.remaining for grant in usable)
        held = [
            hold for hold, state in self._kept.holds.values() if state is HoldState.HELD and hold.account == name
        ]  # fmt: skip
        return Account(
            id=name, paid_by=wallet.paid_by, available=available, reserved=sum(hold.price for hold in held),
            created_at=self._kept.created[name], spent=sums[SPENT], expired=sums[EXPIRED] + sums[AVAILABLE] - available,
            granted=-sum(total for bucket, total in sums.items() if bucket.startswith("granted:")),
            quota=wallet.quota, usage=wallet.uses.by_period, grants=tuple(usable),
        )  # fmt: skip
