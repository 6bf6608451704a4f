"""The ledger of credits in its tables, inside one transaction.

Nothing here decides: `holdfast.contrib.credits.posting` does, and a `Posting` is what is written. Inside the transaction of a move only
that transaction may be awaited, so no method awaits anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.contrib.credits.model import (
    AVAILABLE,
    EXPIRED,
    SPENT,
    Account,
    CreditHold,
    Draw,
    Grant,
    HoldState,
    LedgerEntry,
    Sold,
)
from holdfast.contrib.credits.posting import Posting, Wallet
from holdfast.extensions import JobId, Transaction, sql

HOLD = "job, generation, account, owner, price, draws, at"
GRANT = "id, account, source, amount, remaining, expires_at, created_at, by, note"
#: What is left of grants that have not expired at $1, and what jobs of the account have reserved.
_ACCOUNT = """SELECT a.id, a.paid_by, a.created_at,
       (SELECT coalesce(sum(g.remaining), 0)::bigint FROM holdfast.credit_grant g
         WHERE g.account = a.id AND g.remaining > 0 AND (g.expires_at IS NULL OR g.expires_at >= $1::timestamptz)),
       (SELECT coalesce(sum(h.price), 0)::bigint FROM holdfast.credit_hold h WHERE h.account = a.id AND h.standing = 'held')
  FROM holdfast.credit_account a"""
#: Each table that rows are inserted into: its columns and their types.
COLUMNS = {
    "credit_grant": {
        "id": "text", "account": "text", "source": "text", "amount": "bigint", "remaining": "bigint",
        "expires_at": "timestamptz", "created_at": "timestamptz", "by": "text", "note": "text",
    },
    "credit_hold": {
        "job": "text", "generation": "int", "account": "text", "owner": "text", "price": "bigint", "draws": "text",
        "at": "timestamptz",
    },
    "credit_entry": {
        "tx": "text", "account": "text", "bucket": "text", "amount": "bigint", "at": "timestamptz", "reason": "text",
        "job": "text", "generation": "int", "by": "text", "note": "text",
    },
}  # fmt: skip


class Books:
    """The accounts, prices, holds and entries, as one transaction sees them."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def _run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await sql.fetch(self._transaction, statement, *parameters)]

    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]:
        """Return these jobs as they are in this transaction, without those that are gone."""
        jobs = await self._transaction.jobs(job_ids)
        return [Sold(job.id, job.task, job.owner, job.generation, job.state) for job in jobs]

    async def now(self) -> datetime:
        """Return the time by the store's clock."""
        return await self._transaction.now()

    async def prices(self) -> dict[str, int]:
        """Return the price of every task that was ever sold."""
        return dict(await self._run("SELECT task, price FROM holdfast.credit_price"))

    async def has_hold(self, job_id: JobId, generation: int) -> bool:
        """Return whether this generation of the job has reserved credits, whatever became of them."""
        statement = "SELECT 1 FROM holdfast.credit_hold WHERE job = $1::text AND generation = $2::int"
        return bool(await self._run(statement, job_id, generation))

    async def holds(self, *, after: int, limit: int) -> list[tuple[int, CreditHold]]:
        """Return open holds with their numbers, oldest first: those whose number is larger than *after*."""
        rows = await self._run(
            f"SELECT number, {HOLD} FROM holdfast.credit_hold WHERE standing = 'held' AND number > $1::bigint"
            " ORDER BY number LIMIT $2::int", after, limit,
        )  # fmt: skip
        return [(row[0], self._hold(row[1:])) for row in rows]

    async def expiring(self, now: datetime, limit: int) -> list[str]:
        """Return accounts with something left in a grant that has expired."""
        rows = await self._run(
            "SELECT DISTINCT account FROM holdfast.credit_grant"
            " WHERE remaining > 0 AND expires_at IS NOT NULL AND expires_at < $1::timestamptz LIMIT $2::int", now, limit,
        )  # fmt: skip
        return [row[0] for row in rows]

    async def grant(self, grant_id: str) -> Grant | None:
        rows = await self._run(f"SELECT {GRANT} FROM holdfast.credit_grant WHERE id = $1::text", grant_id)
        return self._grant(rows[0]) if rows else None

    async def has_tx(self, tx: str) -> bool:
        """Return whether the ledger has entries of this name."""
        return bool(await self._run("SELECT 1 FROM holdfast.credit_entry WHERE tx = $1::text LIMIT 1", tx))

    async def accounts(self, *, after: str, limit: int, now: datetime) -> list[Account]:
        """Return accounts by name, without sums of the whole ledger: spent, expired and granted are left out."""
        rows = await self._run(
            f"{_ACCOUNT} WHERE a.id > $2::text ORDER BY a.id LIMIT $3::int", now, after, limit
        )
        return [self._account(row) for row in rows]

    async def account(self, account: str, now: datetime) -> Account | None:
        rows = await self._run(f"{_ACCOUNT} WHERE a.id = $2::text", now, account)
        if not rows:
            return None
        sums = await self._run(
            "SELECT bucket, sum(amount)::bigint FROM holdfast.credit_entry WHERE account = $1::text GROUP BY bucket", account
        )  # fmt: skip
        found = await self._run(
            f"SELECT {GRANT} FROM holdfast.credit_grant WHERE account = $1::text AND remaining > 0"
            " ORDER BY expires_at IS NULL, expires_at, created_at, id LIMIT 1000", account,
        )  # fmt: skip
        grants = tuple(g for g in map(self._grant, found) if not g.has_expired(now))
        return self._account(rows[0], dict(sums), grants)

    async def entries(
        self, *, account: str | None, job_id: str | None, before: int | None, limit: int
    ) -> list[LedgerEntry]:
        """Return entries of the ledger, newest first."""
        where, parameters = ["number < $1::bigint"], [before if before is not None else 1 << 62, limit]
        for column, value in (("account", account), ("job", job_id)):
            if value is not None:
                parameters.append(value)  # type: ignore[arg-type]
                where.append(f"{column} = ${len(parameters)}::text")
        rows = await self._run(
            "SELECT tx, account, bucket, amount, reason, job, generation, by, note, number, at FROM holdfast.credit_entry"
            f" WHERE {' AND '.join(where)} ORDER BY number DESC LIMIT $2::int", *parameters,
        )  # fmt: skip
        return [
            LedgerEntry(
                tx=tx, account=account, bucket=bucket, amount=amount, reason=reason, job_id=job, generation=generation,
                by=by, note=note, number=number, at=sql.moment(at),
            )
            for tx, account, bucket, amount, reason, job, generation, by, note, number, at in rows
        ]  # fmt: skip

    async def problems(self) -> list[str]:
        """Return what does not balance, a line each; nothing when all is well."""
        unbalanced = await self._run(
            "SELECT tx, sum(amount)::bigint FROM holdfast.credit_entry GROUP BY tx HAVING sum(amount) <> 0 LIMIT 100"
        )
        found = [f"the entries of {tx} sum to {total}, not to 0" for tx, total in unbalanced]
        accounts = await self._run(
            """SELECT * FROM (
               SELECT a.id, a.available,
                      (SELECT coalesce(sum(e.amount), 0)::bigint FROM holdfast.credit_entry e
                        WHERE e.account = a.id AND e.bucket = 'available') AS entered,
                      (SELECT coalesce(sum(g.remaining), 0)::bigint FROM holdfast.credit_grant g
                        WHERE g.account = a.id AND g.remaining > 0) AS remaining,
                      (SELECT coalesce(sum(e.amount), 0)::bigint FROM holdfast.credit_entry e
                        WHERE e.account = a.id AND e.bucket = 'reserved') AS reserved,
                      (SELECT coalesce(sum(h.price), 0)::bigint FROM holdfast.credit_hold h
                        WHERE h.account = a.id AND h.standing = 'held') AS held
                 FROM holdfast.credit_account a) s
               WHERE available <> entered OR available <> remaining OR reserved <> held ORDER BY id LIMIT 100"""
        )
        for name, available, entered, remaining, reserved, held in accounts:
            if (available, available) != (entered, remaining):
                found.append(
                    f"{name} has {available} available, its entries say {entered}, its grants have {remaining} left"
                )
            if reserved != held:
                found.append(f"{name} has {reserved} reserved by its entries, its jobs hold {held}")
        return found

    # -- writing ----------------------------------------------------------------------------------------------------
    async def _add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of all the columns that `COLUMNS` names."""
        await sql.insert(self._transaction, table, COLUMNS[table], rows)

    async def _set(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Change rows by their id: each is its id, then these *columns* (name → type)."""
        await sql.update(self._transaction, table, ("id", "text"), columns, rows)

    async def forget(self, job_ids: Collection[JobId]) -> None:
        """Delete the closed holds of jobs that are gone. What they have paid stays in the ledger."""
        await self._run(
            "DELETE FROM holdfast.credit_hold WHERE job = ANY ($1::text[]) AND standing <> 'held'",
            list(job_ids),
        )

    async def set_price(self, task: str, price: int) -> None:
        await self._run(
            "INSERT INTO holdfast.credit_price (task, price) VALUES ($1::text, $2::bigint)"
            " ON CONFLICT (task) DO UPDATE SET price = excluded.price", task, price,
        )  # fmt: skip

    async def open(self, account: str, now: datetime) -> None:
        """Make the account, unless it exists."""
        await self._run(
            "INSERT INTO holdfast.credit_account (id, created_at) VALUES ($1::text, $2::timestamptz)"
            " ON CONFLICT (id) DO NOTHING", account, now,
        )  # fmt: skip

    async def set_payer(self, account: str, paid_by: str | None) -> None:
        await self._run(
            "UPDATE holdfast.credit_account SET paid_by = $2::text WHERE id = $1::text", account, paid_by
        )

    async def payers(self, owners: Collection[str]) -> dict[str, str]:
        """Return who pays, for those of *owners* for whom another account does."""
        rows = await self._run(
            "SELECT id, paid_by FROM holdfast.credit_account WHERE id = ANY ($1::text[]) AND paid_by IS NOT NULL",
            list(owners),
        )
        return dict(rows)

    async def paid_for(self, account: str) -> list[str]:
        """Return some of the accounts that *account* pays for."""
        rows = await self._run(
            "SELECT id FROM holdfast.credit_account WHERE paid_by = $1::text ORDER BY id LIMIT 10", account
        )
        return [row[0] for row in rows]

    async def lock(self, accounts: Collection[str], grants: Collection[str] = ()) -> dict[str, Wallet]:
        """Lock *accounts* until the transaction ends, and return each with what is left of its grants.

        The *grants* come along whatever is left of them. An account that does not exist is empty.
        """
        # In one order, so that two who need the same ones do not wait for each other.
        rows = await self._run(
            "SELECT id, available FROM holdfast.credit_account WHERE id = ANY ($1::text[])"
            " ORDER BY id FOR UPDATE", sorted(accounts),
        )  # fmt: skip
        wallets = {name: Wallet(name) for name in accounts}
        for name, available in rows:
            wallets[name] = Wallet(name, available)
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
        """End the open holds of these jobs, of generations before *before*, and return those that were open.

        It is guarded: of two calls that close the same hold, one gets it.
        """
        rows = await self._run(
            "UPDATE holdfast.credit_hold SET standing = $2::text, settled_at = $3::timestamptz"
            " WHERE job = ANY ($1::text[]) AND standing = 'held' AND generation < $4::bigint"
            f" RETURNING {HOLD}", list(job_ids), str(state), now, 1 << 40 if before is None else before,
        )  # fmt: skip
        return [self._hold(row) for row in rows]

    async def write(self, page: Posting) -> None:
        """Write the rows of *page*."""
        changed = page.changed_wallets()
        await self._set(
            "credit_account",
            {"available": "bigint"},
            [(wallet.id, wallet.available) for wallet in changed],
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
                (h.job_id, h.generation, h.account, h.owner, h.price, sql.to_json(h.draws), h.at)
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

    # -- rows -------------------------------------------------------------------------------------------------------
    def _grant(self, row: Sequence[Any]) -> Grant:
        name, account, source, amount, remaining, expires_at, created_at, by, note = row
        return Grant(
            id=name, account=account, source=source, amount=amount, remaining=remaining,
            expires_at=None if expires_at is None else sql.moment(expires_at),
            created_at=sql.moment(created_at), by=by, note=note,
        )  # fmt: skip

    def _hold(self, row: Sequence[Any]) -> CreditHold:
        job, generation, account, owner, price, draws, at = row
        return CreditHold(
            job_id=JobId(job), generation=generation, account=account, owner=owner, price=price,
            draws=tuple(Draw(*draw) for draw in sql.from_json(draws)), at=sql.moment(at),
        )  # fmt: skip

    def _account(
        self, row: Sequence[Any], sums: Mapping[str, int] | None = None, grants: tuple[Grant, ...] = ()
    ) -> Account:
        name, paid_by, created_at, available, reserved = row
        sums = sums or {}
        return Account(
            id=name, paid_by=paid_by, available=available, reserved=reserved, created_at=sql.moment(created_at),
            spent=sums.get(SPENT, 0),
            # It has expired, whether or not maintenance has recorded it.
            expired=sums.get(EXPIRED, 0) + (sums[AVAILABLE] - available if AVAILABLE in sums else 0),
            granted=-sum(total for bucket, total in sums.items() if bucket.startswith("granted:")),
            grants=grants,
        )  # fmt: skip
