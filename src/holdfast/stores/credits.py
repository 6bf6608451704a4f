"""The ledger in tables, inside one transaction: what both dialects share (`holdfast.credits.books` is the contract).

The statements are PostgreSQL's. SQLite's books say them in their own words (`sqlite.credits`): the tables have the same
columns, so that two texts would only drift apart.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from holdfast.domain.credit import CreditHold, CreditQuota, HoldState
from holdfast.domain.job import JobId
from holdfast.domain.posting import Posting, Wallet
from holdfast.stores.credit_queries import GRANT, HOLD, CreditLooks, quota_of, uses_of
from holdfast.stores.encoding import to_json

#: Table → its columns and their types, as they are written.
COLUMNS = {
    "credit_grant": {
        "id": "text", "account": "text", "source": "text", "amount": "bigint", "remaining": "bigint",
        "expires_at": "timestamptz", "created_at": "timestamptz", "by": "text", "note": "text",
    },
    "credit_hold": {
        "job": "text", "generation": "int", "account": "text", "owner": "text", "price": "bigint", "draws": "text",
        "is_retry": "boolean", "at": "timestamptz",
    },
    "credit_entry": {
        "tx": "text", "account": "text", "bucket": "text", "amount": "bigint", "at": "timestamptz", "reason": "text",
        "job": "text", "generation": "int", "by": "text", "note": "text",
    },
}  # fmt: skip


class SqlBooks(CreditLooks):
    @abstractmethod
    async def _add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Rows of all the columns that `COLUMNS` names."""

    @abstractmethod
    async def _set(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Change rows by their id: each is its id, then these *columns* (name → type)."""

    # -- prices and accounts ----------------------------------------------------------------------------------------
    async def set_price(self, task: str, price: int) -> None:
        await self._run(
            "INSERT INTO holdfast.credit_price (task, price) VALUES ($1::text, $2::bigint)"
            " ON CONFLICT (task) DO UPDATE SET price = excluded.price", task, price,
        )  # fmt: skip

    async def open(self, account: str, now: datetime) -> None:
        await self._run(
            "INSERT INTO holdfast.credit_account (id, created_at) VALUES ($1::text, $2::timestamptz)"
            " ON CONFLICT (id) DO NOTHING", account, now,
        )  # fmt: skip

    async def set_payer(self, account: str, paid_by: str | None) -> None:
        await self._run(
            "UPDATE holdfast.credit_account SET paid_by = $2::text WHERE id = $1::text", account, paid_by
        )

    async def set_quota(self, account: str, quota: CreditQuota) -> None:
        said = {f.name: getattr(quota, f.name) for f in fields(quota) if getattr(quota, f.name) is not None}
        await self._run(
            "UPDATE holdfast.credit_account SET quota = $2::text WHERE id = $1::text", account, to_json(said)
        )

    async def payers(self, owners: Collection[str]) -> dict[str, str]:
        rows = await self._run(
            "SELECT id, paid_by FROM holdfast.credit_account WHERE id = ANY ($1::text[]) AND paid_by IS NOT NULL",
            list(owners),
        )
        return dict(rows)

    async def paid_for(self, account: str) -> list[str]:
        rows = await self._run(
            "SELECT id FROM holdfast.credit_account WHERE paid_by = $1::text ORDER BY id LIMIT 10", account
        )
        return [row[0] for row in rows]

    # -- writing ----------------------------------------------------------------------------------------------------
    async def lock(self, accounts: Collection[str], grants: Collection[str] = ()) -> dict[str, Wallet]:
        # In one order, so that two who need the same ones do not wait for each other.
        rows = await self._run(
            "SELECT id, paid_by, available, quota, uses FROM holdfast.credit_account WHERE id = ANY ($1::text[])"
            " ORDER BY id FOR UPDATE", sorted(accounts),
        )  # fmt: skip
        wallets = {name: Wallet(name, exists=False) for name in accounts}
        for name, paid_by, available, quota, uses in rows:
            wallets[name] = Wallet(name, paid_by, available, {}, quota_of(quota), uses_of(uses))
        found = await self._run(
            f"SELECT {GRANT} FROM holdfast.credit_grant"
            " WHERE (account = ANY ($1::text[]) AND remaining > 0) OR id = ANY ($2::text[])",
            sorted(accounts), sorted(grants),
        )  # fmt: skip
        for row in found:
            grant = self._grant(row)
            wallets[grant.account].grants[grant.id] = grant
        return wallets

    async def close(
        self, job_ids: Collection[JobId], state: HoldState, now: datetime, *, before: int | None = None
    ) -> list[CreditHold]:
        rows = await self._run(
            "UPDATE holdfast.credit_hold SET standing = $2::text, settled_at = $3::timestamptz"
            " WHERE job = ANY ($1::text[]) AND standing = 'held' AND generation < $4::bigint"
            f" RETURNING {HOLD}", list(job_ids), str(state), now, 1 << 40 if before is None else before,
        )  # fmt: skip
        return [self._hold(row) for row in rows]

    async def write(self, page: Posting) -> None:
        changed = page.changed_wallets()
        await self._set(
            "credit_account",
            {"available": "bigint", "uses": "text"},
            [(wallet.id, wallet.available, to_json(wallet.uses.by_period)) for wallet in changed],
        )
        left = [(grant.id, grant.remaining) for grant in page.changed_grants()]
        await self._set("credit_grant", {"remaining": "bigint"}, left)
        await self._add(
            "credit_grant",
            [
                (g.id, g.account, g.source, g.amount, page.wallets[g.account].grants[g.id].remaining,
                 g.expires_at, g.created_at, g.by, g.note)
                for g in page.new_grants
            ],
        )  # fmt: skip
        await self._add(
            "credit_hold",
            [
                (h.job_id, h.generation, h.account, h.owner, h.price, to_json(h.draws), h.is_retry, h.at)
                for h in page.holds
            ],
        )
        await self._add(
            "credit_entry",
            [
                (
                    e.tx,
                    e.account,
                    e.bucket,
                    e.amount,
                    page.now,
                    e.reason,
                    e.job_id,
                    e.generation,
                    e.by,
                    e.note,
                )
                for e in page.entries
            ],
        )
