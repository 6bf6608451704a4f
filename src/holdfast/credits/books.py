"""What credits ask of a store: the ledger inside one transaction. The docstrings are the contract.

Nothing here decides: `domain.creditpage` does, and a `Posting` is what is written. Inside the transaction of a move on SQLite
nobody may be waited for, so each of these awaits its transaction alone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from holdfast.domain.credit import Account, CreditHold, CreditQuota, Grant, HoldState, LedgerEntry, Sold
from holdfast.domain.job import JobId
from holdfast.domain.posting import Posting, Wallet


class Books(Protocol):
    async def now(self) -> datetime:
        """By the store's clock."""

    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]:
        """These jobs as they are in this transaction; those that are gone are left out."""

    # -- prices and accounts ----------------------------------------------------------------------------------------
    async def prices(self) -> dict[str, int]:
        """Of every task that was ever sold."""

    async def set_price(self, task: str, price: int) -> None: ...

    async def open(self, account: str, now: datetime) -> None:
        """Make the account, unless it is there."""

    async def set_payer(self, account: str, paid_by: str | None) -> None: ...

    async def set_quota(self, account: str, quota: CreditQuota) -> None: ...

    async def payers(self, owners: Collection[str]) -> dict[str, str]:
        """Who pays, for those of *owners* for whom another account does."""

    async def paid_for(self, account: str) -> list[str]:
        """Some of those that *account* pays for."""

    # -- writing ----------------------------------------------------------------------------------------------------
    async def lock(self, accounts: Collection[str], grants: Collection[str] = ()) -> dict[str, Wallet]:
        """All of *accounts*, with what is left of their grants, and these *grants* of theirs whatever is left. Nobody else
        changes them until the transaction ends. One that is not there is empty, and does not exist."""

    async def close(
        self, job_ids: Collection[JobId], state: HoldState, now: datetime, *, before: int | None = None
    ) -> list[CreditHold]:
        """End the open holds of these jobs (of generations *before* one); those that were open. Guarded: of two who close the
        same, one gets it."""

    async def write(self, page: Posting) -> None: ...

    # -- looking ----------------------------------------------------------------------------------------------------
    async def has_hold(self, job_id: JobId, generation: int) -> bool:
        """Whether this generation has paid or will, whatever became of it."""

    async def holds(self, *, after: int, limit: int) -> list[tuple[int, CreditHold]]:
        """Open holds with their numbers, oldest first, from behind *after*."""

    async def expiring(self, now: datetime, limit: int) -> list[str]:
        """Accounts with something left in a grant that has expired."""

    async def grant(self, grant_id: str) -> Grant | None: ...

    async def has_tx(self, tx: str) -> bool: ...

    async def accounts(self, *, after: str, limit: int, now: datetime) -> list[Account]:
        """By name, without sums of the whole ledger: what is spent, expired and granted is left out."""

    async def account(self, account: str, now: datetime) -> Account | None: ...

    async def entries(
        self, *, account: str | None, job_id: str | None, before: int | None, limit: int
    ) -> list[LedgerEntry]:
        """Newest first."""

    async def problems(self) -> list[str]:
        """What does not balance, a line each; empty when all is well."""
