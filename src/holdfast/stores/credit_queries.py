"""The half of the ledger that only reads, for both dialects; and how its rows become values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.credit import (
    AVAILABLE,
    EXPIRED,
    SPENT,
    Account,
    CreditHold,
    CreditQuota,
    Draw,
    Grant,
    LedgerEntry,
    Sold,
    Usage,
    Uses,
)
from holdfast.domain.job import JobId
from holdfast.domain.moves import State
from holdfast.engine.ports import Transaction
from holdfast.stores.encoding import from_json

HOLD = "job, generation, account, owner, price, draws, is_retry, at"
GRANT = "id, account, source, amount, remaining, expires_at, created_at, by, note"
#: What is left of grants that have not expired at $1, and what jobs of the account have reserved.
_ACCOUNT = """SELECT a.id, a.paid_by, a.quota, a.uses, a.created_at,
       (SELECT coalesce(sum(g.remaining), 0)::bigint FROM holdfast.credit_grant g
         WHERE g.account = a.id AND g.remaining > 0 AND (g.expires_at IS NULL OR g.expires_at >= $1::timestamptz)),
       (SELECT coalesce(sum(h.price), 0)::bigint FROM holdfast.credit_hold h WHERE h.account = a.id AND h.standing = 'held')
  FROM holdfast.credit_account a"""


class CreditLooks(ABC):
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @abstractmethod
    async def _run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _moment(self, value: Any) -> datetime:
        """As this dialect keeps it."""

    @abstractmethod
    async def sold(self, job_ids: Collection[JobId]) -> list[Sold]: ...

    async def now(self) -> datetime:
        return await self._transaction.now()

    async def prices(self) -> dict[str, int]:
        return dict(await self._run("SELECT task, price FROM holdfast.credit_price"))

    async def has_hold(self, job_id: JobId, generation: int) -> bool:
        sql = "SELECT 1 FROM holdfast.credit_hold WHERE job = $1::text AND generation = $2::int"
        return bool(await self._run(sql, job_id, generation))

    async def holds(self, *, after: int, limit: int) -> list[tuple[int, CreditHold]]:
        rows = await self._run(
            f"SELECT number, {HOLD} FROM holdfast.credit_hold WHERE standing = 'held' AND number > $1::bigint"
            " ORDER BY number LIMIT $2::int", after, limit,
        )  # fmt: skip
        return [(row[0], self._hold(row[1:])) for row in rows]

    async def expiring(self, now: datetime, limit: int) -> list[str]:
        rows = await self._run(
            "SELECT DISTINCT account FROM holdfast.credit_grant"
            " WHERE remaining > 0 AND expires_at IS NOT NULL AND expires_at < $1::timestamptz LIMIT $2::int", now, limit,
        )  # fmt: skip
        return [row[0] for row in rows]

    async def grant(self, grant_id: str) -> Grant | None:
        rows = await self._run(f"SELECT {GRANT} FROM holdfast.credit_grant WHERE id = $1::text", grant_id)
        return self._grant(rows[0]) if rows else None

    async def has_tx(self, tx: str) -> bool:
        return bool(await self._run("SELECT 1 FROM holdfast.credit_entry WHERE tx = $1::text LIMIT 1", tx))

    async def accounts(self, *, after: str, limit: int, now: datetime) -> list[Account]:
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
                by=by, note=note, number=number, at=self._moment(at),
            )
            for tx, account, bucket, amount, reason, job, generation, by, note, number, at in rows
        ]  # fmt: skip

    async def problems(self) -> list[str]:
        unbalanced = await self._run(
            "SELECT tx, sum(amount)::bigint FROM holdfast.credit_entry GROUP BY tx HAVING sum(amount) <> 0 LIMIT 100"
        )
        told = [f"the entries of {tx} sum to {total}, not to 0" for tx, total in unbalanced]
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
                told.append(
                    f"{name} has {available} available, its entries say {entered}, its grants have {remaining} left"
                )
            if reserved != held:
                told.append(f"{name} has {reserved} reserved by its entries, its jobs hold {held}")
        return told

    # -- rows -------------------------------------------------------------------------------------------------------
    def _grant(self, row: Sequence[Any]) -> Grant:
        name, account, source, amount, remaining, expires_at, created_at, by, note = row
        return Grant(
            id=name, account=account, source=source, amount=amount, remaining=remaining,
            expires_at=None if expires_at is None else self._moment(expires_at),
            created_at=self._moment(created_at), by=by, note=note,
        )  # fmt: skip

    def _hold(self, row: Sequence[Any]) -> CreditHold:
        job, generation, account, owner, price, draws, is_retry, at = row
        return CreditHold(
            job_id=JobId(job), generation=generation, account=account, owner=owner, price=price,
            draws=tuple(Draw(*draw) for draw in from_json(draws)), is_retry=bool(is_retry), at=self._moment(at),
        )  # fmt: skip

    def _account(
        self, row: Sequence[Any], sums: Mapping[str, int] | None = None, grants: tuple[Grant, ...] = ()
    ) -> Account:
        name, paid_by, quota, uses, created_at, available, reserved = row
        sums = sums or {}
        return Account(
            id=name, paid_by=paid_by, available=available, reserved=reserved, created_at=self._moment(created_at),
            spent=sums.get(SPENT, 0),
            # What has expired has, whether or not a duty has come by.
            expired=sums.get(EXPIRED, 0) + (sums[AVAILABLE] - available if AVAILABLE in sums else 0),
            granted=-sum(total for bucket, total in sums.items() if bucket.startswith("granted:")),
            quota=quota_of(quota), usage=uses_of(uses).by_period, grants=grants,
        )  # fmt: skip

    def _sold(self, rows: Sequence[tuple[Any, ...]]) -> list[Sold]:
        return [
            Sold(JobId(str(job)), task, owner, generation, State(state))
            for job, task, owner, generation, state in rows
        ]


def quota_of(text: str) -> CreditQuota:
    return CreditQuota(**from_json(text))


def uses_of(text: str) -> Uses:
    kept: dict[str, list[Any]] = from_json(text)
    return Uses({p: Usage(datetime.fromisoformat(begins), *counts) for p, (begins, *counts) in kept.items()})
