"""The extension: the price of tasks, what jobs cost, and what can be done with accounts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from holdfast import Conflict, UsageError
from holdfast.contrib.credits import charging
from holdfast.contrib.credits.books import Books
from holdfast.contrib.credits.errors import UnknownAccount
from holdfast.contrib.credits.model import (
    MOST,
    Account,
    Grant,
    LedgerEntry,
    account_name,
)
from holdfast.contrib.credits.posting import Posting
from holdfast.extensions import (
    Duration,
    Extension,
    JobId,
    MaintenanceTask,
    MoveNotice,
    Transaction,
    Transacts,
    duration,
    validation,
)

T = TypeVar("T")

#: How many accounts or holds are handled in one transaction.
BATCH = 200
MOST_PER_PAGE = 1000
#: Seconds between two looks at grants that expire and at holds whose jobs have ended.
EVERY = 30.0


class Credits(Extension):
    """Sells jobs. A task has a price, `extra={"price": 2}`; the owner of a job pays, or the account that pays for the owner.

    Credits move in the transaction of the job's own move: a job is there and paid for, or neither.
    """

    name = "credits"
    migrations = "holdfast.contrib.credits"
    kinds = charging.KINDS
    capabilities = frozenset({"credits"})
    task_options: ClassVar = {"price": lambda option, value: validation.whole(option, value, 0, MOST)}

    def __init__(self) -> None:
        self._known: dict[str, int] | None = None  #: the prices in the database, once they were read
        self._settled = 0  #: the last of the open holds that maintenance has looked at

    @property
    def sync(self) -> SyncCredits:
        """Every verb for code without an event loop: `credits.sync.grant(…)`."""
        return SyncCredits(self)

    # -- prices -----------------------------------------------------------------------------------------------------
    def price_of(self, task: str) -> int:
        """Return what a job of *task* costs. Tasks that this app does not have cost what their own app said."""
        declared = self.app.tasks.get(task)
        return (self._known or {}).get(task, 0) if declared is None else self._declared_price(task)

    def _declared_price(self, task: str) -> int:
        price: int = self.app.tasks[task].policy.extra.get("price", 0)
        return price

    async def opened(self, store: Transacts) -> None:
        """Record the prices of this app, and read those of others: a retry from the command line costs the same."""
        known = await store.transact(lambda transaction: Books(transaction).prices(), reads=True)
        own = {name: self._declared_price(name) for name in self.app.tasks}
        changed = {name: price for name, price in own.items() if known.get(name, 0) != price}

        async def record(transaction: Transaction) -> None:
            for name, price in sorted(changed.items()):  # in one order: another process may record the same
                await Books(transaction).set_price(name, price)

        if changed:
            await store.transact(record)
        self._known = known

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        books = Books(transaction)
        if (
            self._known is None
        ):  # code without an event loop enqueues on SQLite before the store is opened in one
            self._known = await books.prices()
        await charging.charge(books, self.price_of, moves)

    async def purged(self, transaction: Transaction, job_ids: Collection[JobId]) -> None:
        await Books(transaction).forget(job_ids)

    def maintenance(self) -> Sequence[MaintenanceTask]:
        return [MaintenanceTask("credits", EVERY, self.run_maintenance)]

    # -- accounts ---------------------------------------------------------------------------------------------------
    async def open(self, account: str, *, paid_by: str | None = None) -> Account:
        """Make an account, unless it exists, and return it.

        With *paid_by* another account pays for what this one's jobs cost from now on; with its own name it pays itself again.
        """
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
                    raise UsageError(f"{name} pays for other accounts, so no other account can pay for it")
                await books.set_payer(name, payer)
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
        """Give credits to an account, which is made if it does not exist, and return the grant.

        Args:
            account: The account.
            amount: How many.
            source: Where they come from: `purchase`, `compensation` …
            expires: When they expire, as a duration or a moment; None: never.
            note: Kept in the ledger.
            by: Who gives them; kept in the ledger.
            id: Grants with the same id are given once.
        """
        name, credited = account_name(account), validation.whole("amount", amount, 1, MOST)
        key = id or self.app.new_id()

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
        """Correct an account by hand, up or down, and return it. Raises `InsufficientCredits` rather than go below zero."""
        name = account_name(account)
        if not reason:
            raise UsageError("the account is adjusted without a reason; write reason=…")
        if validation.whole("amount", amount, -MOST, MOST) == 0:
            raise UsageError("amount is 0; it is how many credits more, or with a minus how many less")
        key = id or self.app.new_id()
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

    # -- reading ----------------------------------------------------------------------------------------------------
    async def account(self, account: str) -> Account:
        """Return an account: what it has, what is reserved, what became of the rest. Raises `UnknownAccount`."""
        return await self._read(lambda books: _found(books, account))

    async def accounts(self, *, after: str = "", limit: int = 50) -> list[Account]:
        """Return accounts by name, those after *after*, without sums of the whole ledger (spent, expired, granted)."""
        most = validation.whole("limit", limit, 1, MOST_PER_PAGE)

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
        """Return entries of an account or a job, newest first; *before* is the number of the last one of the page before."""
        most = validation.whole("limit", limit, 1, MOST_PER_PAGE)
        return await self._read(
            lambda books: books.entries(account=account, job_id=job_id, before=before, limit=most)
        )

    # -- keeping ----------------------------------------------------------------------------------------------------
    async def check(self) -> list[str]:
        """Return what does not balance, and what is still reserved for jobs that have ended, a line each."""
        lines, after = await self._read(lambda books: books.problems()), 0
        while True:
            start = after

            async def look(books: Books, start: int = start) -> tuple[list[str], int | None]:
                return await charging.unsettled_holds(books, start, BATCH)

            unsettled, following = await self._read(look)
            lines += unsettled
            if following is None:
                return lines
            after = following

    async def reconcile(self) -> int:
        """Settle what is still reserved for jobs that were ended by processes without credits, and return how many."""
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
        """Expire what is left of grants that have ended, and return for how many accounts."""
        total = 0
        while await self._read(charging.is_expiring):  # reading takes no lock
            total += await self._write(lambda books: charging.expire(books, BATCH))
        return total

    async def run_maintenance(self) -> None:
        """Expire grants, and settle some of the holds that were left behind; each run continues after the last."""
        await self.expire()
        start = self._settled
        left, following = await self._read(lambda books: charging.unsettled_holds(books, start, BATCH))
        if left:
            await self._settle(start)
        self._settled = following or 0

    # -- transactions -----------------------------------------------------------------------------------------------
    async def _write(self, work: Callable[[Books], Awaitable[T]]) -> T:
        return await self.app.transact(lambda transaction: work(Books(transaction)))

    async def _read(self, work: Callable[[Books], Awaitable[T]]) -> T:
        return await self.app.transact(lambda transaction: work(Books(transaction)), reads=True)


async def _found(books: Books, account: str) -> Account:
    found = await books.account(account, await books.now())
    if found is None:
        raise UnknownAccount(account)
    return found


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


class SyncCredits:
    """The verbs of `Credits`, as plain calls."""

    def __init__(self, credits: Credits) -> None:  # noqa: A002 - what the extension is called
        self._credits = credits

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        found = getattr(self._credits, verb, None)
        if verb not in _VERBS or not inspect.iscoroutinefunction(found):
            raise AttributeError(f"no verb {verb}; there are {', '.join(sorted(_VERBS))}")

        def call(*args: Any, **kwargs: Any) -> Any:
            work: Coroutine[Any, Any, Any] = found(*args, **kwargs)
            return self._credits.app.run_sync(work)

        return call


_VERBS = frozenset(
    {"account", "accounts", "adjust", "check", "expire", "grant", "ledger", "open", "reconcile"}
)
