"""Charge for moves of jobs, in their own transaction: reserve, capture, return.

enqueue, retry and redrive of a finished job ► reserve · complete ► capture · failed, cancelled, timed out ► return.
Automatic retries, releases and reclaims cost nothing: the generation is paid for already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast import UsageError
from holdfast.contrib.credits.books import Books
from holdfast.contrib.credits.model import CreditHold, HoldState, hold_state
from holdfast.contrib.credits.posting import Posting, Sale
from holdfast.extensions import JobId, Kind, MoveNotice

BEGINS = frozenset({Kind.queued, Kind.manual_retry, Kind.redriven})
RETURNS = frozenset({Kind.failed, Kind.timed_out, Kind.cancelled})
KINDS = BEGINS | RETURNS | {Kind.complete}


async def charge(books: Books, price_of: Callable[[str], int], moves: Sequence[MoveNotice]) -> None:
    """Write what *moves* mean for the ledger. Raise `InsufficientCredits`, and none of them happens."""
    page = Posting(await books.now())
    captured = await _close(books, page, moves, {Kind.complete}, HoldState.CAPTURED)
    returned = await _close(books, page, moves, RETURNS, HoldState.RETURNED)
    sales = await _sales(books, price_of, moves)
    for sale in sales:
        if sale.is_retry:  # its last end was not charged: the process that ended it had no credits
            job, generation = sale.sold.job_id, sale.sold.generation
            returned += await books.close([job], HoldState.RETURNED, page.now, before=generation)
    await settle(books, page, captured, returned, sales)


async def _close(
    books: Books, page: Posting, moves: Iterable[MoveNotice], kinds: Iterable[Kind], state: HoldState
) -> list[CreditHold]:
    ended = [moved.job_id for moved in moves if moved.kind in kinds]
    return await books.close(ended, state, page.now) if ended else []


async def _sales(books: Books, price_of: Callable[[str], int], moves: Sequence[MoveNotice]) -> list[Sale]:
    begun = {moved.job_id: moved for moved in moves if moved.kind in BEGINS}
    if not begun:
        return []
    sales = []
    for sold in await books.sold(list(begun)):
        moved, price = begun[sold.job_id], price_of(sold.task)
        is_retry = moved.kind is not Kind.queued
        if price == 0 or (is_retry and not await _is_new(books, sold.job_id, sold.generation)):
            continue
        if not sold.owner:
            raise UsageError(
                f"a job of {sold.task} costs {price} credits and this one has no owner who pays; enqueue it with owner=…"
            )
        sales.append(Sale(sold, sold.owner, price, is_retry, str(moved.meta.get("by", ""))))
    return sales


async def _is_new(books: Books, job_id: JobId, generation: int) -> bool:
    """Return whether a retry began this generation. The retry of a waiting or stuck job stays in its generation."""
    return generation > 1 and not await books.has_hold(job_id, generation)


async def settle(
    books: Books,
    page: Posting,
    captured: Sequence[CreditHold],
    returned: Sequence[CreditHold],
    sales: Sequence[Sale] = (),
) -> None:
    """Write what closed holds and new *sales* mean for the ledger."""
    payers = await books.payers({sale.owner for sale in sales}) if sales else {}
    accounts = {payers.get(sale.owner, sale.owner) for sale in sales} | {hold.account for hold in returned}
    if accounts:
        page.wallets |= await books.lock(accounts, {draw.grant for hold in returned for draw in hold.draws})
    for hold in captured:
        page.capture(hold)
    for hold in returned:
        page.give_back(hold)
    page.reserve(sales, payers)
    if page.entries:
        await books.write(page)


async def reconcile(books: Books, *, after: int, limit: int) -> tuple[int, int | None]:
    """Settle open holds whose jobs have ended in processes without credits.

    Return how many were settled, and the number to continue after (None: there are no more).
    """
    page = Posting(await books.now())
    held = await books.holds(after=after, limit=limit)
    sold = {one.job_id: one for one in await books.sold([hold.job_id for _, hold in held])} if held else {}
    closed: dict[HoldState, list[CreditHold]] = {HoldState.CAPTURED: [], HoldState.RETURNED: []}
    for _, hold in held:
        state = hold_state(hold, sold.get(hold.job_id))
        if state is not HoldState.HELD:
            closed[state] += await books.close([hold.job_id], state, page.now, before=hold.generation + 1)
    await settle(books, page, closed[HoldState.CAPTURED], closed[HoldState.RETURNED])
    return sum(map(len, closed.values())), held[-1][0] if len(held) == limit else None


async def unsettled_holds(books: Books, after: int, limit: int) -> tuple[list[str], int | None]:
    """Return what is still reserved for jobs that have ended, a line each.

    Also return the number to continue after (None: there are no more).
    """
    held = await books.holds(after=after, limit=limit)
    jobs = {one.job_id: one for one in await books.sold([hold.job_id for _, hold in held])} if held else {}
    lines = []
    for _, hold in held:
        sold = jobs.get(hold.job_id)
        if hold_state(hold, sold) is not HoldState.HELD:
            end = "gone" if sold is None else f"{sold.state} in generation {sold.generation}"
            lines.append(
                f"job {hold.job_id} is {end}, and {hold.price} credits of {hold.account} are still reserved"
                f" for generation {hold.generation}; settle it by `holdfast credits check --settle`"
            )
    return lines, held[-1][0] if len(held) == limit else None


async def is_expiring(books: Books) -> bool:
    """Return whether there is anything to expire."""
    return bool(await books.expiring(await books.now(), 1))


async def expire(books: Books, limit: int) -> int:
    """Expire the rest of grants that have ended, for up to *limit* accounts, and return for how many accounts."""
    page = Posting(await books.now())
    due = await books.expiring(page.now, limit)
    if due:
        page.wallets |= await books.lock(due)
        for wallet in page.wallets.values():
            page.expire(wallet)
        await books.write(page)
    return len(due)
