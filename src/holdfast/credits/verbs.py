"""`app.credits`: what can be done with accounts and their credits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from holdfast.credits import charging
from holdfast.credits.books import Books
from holdfast.credits.sync import EngineLoop, SyncCredits
from holdfast.domain.credit import (
    MOST,
    Account,
    CreditQuota,
    Grant,
    LedgerEntry,
    account_name,
)
from holdfast.domain.duration import Duration, duration
from holdfast.domain.moves import Kind
from holdfast.domain.posting import Posting
from holdfast.domain.validation import whole
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Hook, MoveNotice, Store, Transaction
from holdfast.engine.tasks import Task
from holdfast.errors import Conflict, UnknownAccount, UsageError

T = TypeVar("T")

#: How many accounts or holds are seen to in one transaction.
BATCH = 200
MOST_PER_PAGE = 1000
#: How often the duty looks at grants that expire and at holds whose jobs have ended.
EVERY = 30.0


class Credits:
    """*tasks* say by `price=` what a job of each costs; the owner of the job pays, or the account that pays for the owner.

    Credits move in the transaction of the job's own move: a job is there and paid for, or neither.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        tasks: Mapping[str, Task[Any, Any]],
        books: Callable[[Transaction], Books],
        portal: Callable[[], EngineLoop],
    ) -> None:
        self._engine, self._tasks, self._books, self._portal = engine, tasks, books, portal
        self._elsewhere: dict[str, int] = {}  #: prices of tasks that this app does not have
        self._settled = 0  #: how far the duty has come in the open holds
        self.hook: tuple[frozenset[Kind], Hook] = (charging.KINDS, self._charge)

    @property
    def sync(self) -> SyncCredits:
        """Every verb for code without an event loop: `app.credits.sync.grant(…)`."""
        portal = self._portal()
        return SyncCredits(Credits(portal.engine, self._tasks, self._books, self._portal), portal)

    # -- prices -----------------------------------------------------------------------------------------------------
    def price_of(self, task: str) -> int:
        known = self._tasks.get(task)
        return self._elsewhere.get(task, 0) if known is None else known.policy.price

    async def declare(self, store: Store) -> bool:
        """Tell the database what is sold here, and learn what is sold elsewhere: a retry from the command line costs the same.
        Whether anything is sold or ever was: what has become free may still be paid for by jobs that wait."""
        kept = await store.transact(lambda transaction: self._books(transaction).prices(), reads=True)
        own = {name: task.policy.price for name, task in self._tasks.items()}
        news = {name: price for name, price in own.items() if kept.get(name, 0) != price}

        async def tell(transaction: Transaction) -> None:
            for name, price in sorted(news.items()):  # in one order: others may be telling theirs
                await self._books(transaction).set_price(name, price)

        if news:
            await store.transact(tell)
        self._elsewhere = kept
        return bool(kept) or any(own.values())

    async def _charge(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        await charging.charge(self._books(transaction), self.price_of, moves)

    # -- accounts ---------------------------------------------------------------------------------------------------
    async def open(self, account: str, *, paid_by: str | None = None) -> Account:
        """Make an account, unless it is there. *paid_by*: another account pays for what this one's jobs cost, from now on;
        its own name: itself again."""
        name, payer = account_name(account), None if paid_by is None else account_name(paid_by)

        async def work(books: Books) -> Account:
            now = await books.now()
            await books.open(name, now)
            if payer == name:
                await books.set_payer(name, None)
            elif payer is not None:
                await books.open(payer, now)
                if await books.payers([payer]):
                    raise UsageError(f"{payer} is paid for by another account itself; name that one")
                if await books.paid_for(name):
                    raise UsageError(f"{name} pays for other accounts, so nobody can pay for it")
                await books.set_payer(name, payer)
            return await _found(books, name)

        return await self._write(work)

    async def set_quota(self, account: str, **bounds: int | None) -> Account:
        """What the account may use in a day and a month (UTC): `retries_per_day=`, `retries_per_month=`, `cost_per_day=`,
        `cost_per_month=`. Those that are not named have no bound. Also holds for an organisation that pays for others."""
        name, quota = account_name(account), _quota(bounds)

        async def work(books: Books) -> Account:
            await books.open(name, await books.now())
            await books.set_quota(name, quota)
            return await _found(books, name)

        return await self._write(work)

    async def grant(
        self,
        account: str,
        amount: int,
        *,
        source: str = "grant",
        expires: Duration | datetime | None = None,
        note: str = "",
        by: str = "api",
        id: str | None = None,  # noqa: A002 - as `enqueue` calls it
    ) -> Grant:
        """Give credits, which expire after a while or at a moment if so said. *source* says where they come from: `purchase`,
        `compensation`… Sent again with the same *id* they are given once."""
        name, credited = account_name(account), whole("amount", amount, 1, MOST)
        key = id or (await self._engine()).ids.job_id()

        async def work(books: Books) -> Grant:
            page = Posting(await books.now())
            await books.open(name, page.now)
            page.wallets |= await books.lock([name])
            known = await books.grant(key)
            if known is not None:
                if (known.account, known.amount, known.source) != (name, credited, source):
                    raise Conflict(f"the id {key} was used for another grant; give this one an id of its own")
                return known
            new = Grant(
                id=key, account=name, source=account_name(source), amount=credited, remaining=credited,
                expires_at=_moment(expires, page.now), created_at=page.now, by=by, note=note,
            )  # fmt: skip
            page.grant(new)
            await books.write(page)
            return new

        return await self._write(work)

    async def adjust(
        self,
        account: str,
        amount: int,
        *,
        reason: str,
        by: str = "api",
        id: str | None = None,  # noqa: A002
    ) -> Account:
        """Correct an account by hand, up or down; never below nothing (`InsufficientCredits`)."""
        name = account_name(account)
        if not reason:
            raise UsageError("say why the account is adjusted: reason=…")
        if whole("amount", amount, -MOST, MOST) == 0:
            raise UsageError("amount is 0; it is how many credits more, or with a minus how many less")
        key = id or (await self._engine()).ids.job_id()
        if amount > 0:
            await self.grant(name, amount, source="adjustment", note=reason, by=by, id=key)
            return await self.account(name)

        async def work(books: Books) -> Account:
            page = Posting(await books.now())
            page.wallets |= await books.lock([name])
            if not await books.has_tx(f"adjust:{key}"):
                page.take(page.wallets[name], -amount, key, by=by, note=reason)
                await books.write(page)
            return await _found(books, name)

        return await self._write(work)

    # -- looking ----------------------------------------------------------------------------------------------------
    async def account(self, account: str) -> Account:
        """What it has, what is reserved, what became of the rest. `UnknownAccount` when there is none."""
        return await self._read(lambda books: _found(books, account))

    async def accounts(self, *, after: str = "", limit: int = 50) -> list[Account]:
        """By name, from behind *after*; without sums over the whole ledger (spent, expired, granted)."""
        most = whole("limit", limit, 1, MOST_PER_PAGE)

        async def look(books: Books) -> list[Account]:
            return await books.accounts(after=after, limit=most, now=await books.now())

        return await self._read(look)

    async def ledger(
        self,
        account: str | None = None,
        *,
        job_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[LedgerEntry]:
        """Entries of an account or a job, newest first; *before* is the number of the last one of the page before."""
        most = whole("limit", limit, 1, MOST_PER_PAGE)
        return await self._read(
            lambda books: books.entries(account=account, job_id=job_id, before=before, limit=most)
        )

    # -- keeping ----------------------------------------------------------------------------------------------------
    async def check(self) -> list[str]:
        """What does not balance, and what is still reserved for jobs that have ended; a line each, none when all is well."""
        told, after = await self._read(lambda books: books.problems()), 0
        while True:
            start = after

            async def look(books: Books, start: int = start) -> tuple[list[str], int | None]:
                return await charging.unsettled_holds(books, start, BATCH)

            lines, following = await self._read(look)
            told += lines
            if following is None:
                return told
            after = following

    async def reconcile(self) -> int:
        """Settle what is still reserved for jobs that have ended, because a process ended them that sold nothing; how many."""
        total, after = 0, 0
        while True:
            done, following = await self._settle(after)
            total += done
            if following is None:
                return total
            after = following

    async def _settle(self, after: int) -> tuple[int, int | None]:
        return await self._write(lambda books: charging.reconcile(books, after=after, limit=BATCH))

    async def expire(self) -> int:
        """Expire the rest of grants that have ended and return for how many accounts."""
        total = 0
        while await self._read(charging.is_expiring):  # looking costs no write
            total += await self._write(lambda books: charging.expire(books, BATCH))
        return total

    async def run_maintenance(self) -> None:
        """The duty: expire, and settle some of what was left behind; the whole of it in turns."""
        await self.expire()
        start = self._settled
        left, following = await self._read(lambda books: charging.unsettled_holds(books, start, BATCH))
        if left:
            await self._settle(start)
        self._settled = following or 0

    # -- transactions -----------------------------------------------------------------------------------------------
    async def _write(self, work: Callable[[Books], Awaitable[T]]) -> T:
        store = (await self._engine()).store
        return await store.transact(lambda transaction: work(self._books(transaction)))

    async def _read(self, work: Callable[[Books], Awaitable[T]]) -> T:
        store = (await self._engine()).store
        return await store.transact(lambda transaction: work(self._books(transaction)), reads=True)


async def _found(books: Books, account: str) -> Account:
    found = await books.account(account, await books.now())
    if found is None:
        raise UnknownAccount(account)
    return found


def _quota(bounds: Mapping[str, int | None]) -> CreditQuota:
    unknown = bounds.keys() - CreditQuota.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(CreditQuota.__dataclass_fields__)
        raise UsageError(f"no quota {', '.join(sorted(unknown))}; there are: {known}")
    return CreditQuota(**bounds)


def _moment(expires: Duration | datetime | None, now: datetime) -> datetime | None:
    if expires is None:
        return None
    if not isinstance(expires, datetime):
        return now + duration(expires)
    if expires.tzinfo is None:
        raise UsageError("expires has no time zone; pass an aware datetime, or a duration such as '90d'")
    if expires <= now:
        raise UsageError(f"expires is {expires:%Y-%m-%d %H:%M}, which has passed; name a moment ahead")
    return expires
