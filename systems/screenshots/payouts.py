"""How many credits a broken promise is worth, so that no way of asking earns any (E76, docs/adr/0018-customers-pages.md).

An amount is decided once, under a lock, and stored before it is granted. It is the smallest of: what the tier promises, what
is left of the job's price, what is left of the account's month, and what the account has spent so far beyond its earlier
compensation. The last bound keeps an account from ever holding more credits than it was given.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from holdfast import Holdfast, UsageError
from systems.screenshots.records import Books

# Held until the transaction ends: two who decide at once would each find the other's part of a bound unused.
_LOCK = """INSERT INTO screenshots_mark (name, value) VALUES ('payouts', 1)
    ON CONFLICT (name) DO UPDATE SET value = screenshots_mark.value + 1"""
_PAID = """SELECT coalesce(sum(CASE WHEN job_id = $2 THEN credits ELSE 0 END), 0),
      coalesce(sum(CASE WHEN month = $3 THEN credits ELSE 0 END), 0), coalesce(sum(credits), 0)
    FROM screenshots_payout WHERE account = $1"""


class Claim(NamedTuple):
    """A broken promise whose job has ended."""

    job_id: str
    kind: str
    account: str
    credits: int  #: what its tier promises for it
    price: int  #: of the job
    most_per_month: int  #: of its tier


async def decide(app: Holdfast, books: Books, claim: Claim, now: float) -> int:
    """Return the credits to pay for *claim*; the same number however often it is asked."""
    month = datetime.fromtimestamp(now, UTC).strftime("%Y-%m")
    spent = await _spent(app, claim.account)  # before the lock: it only grows
    async with app.transaction() as connection:

        async def run(sql: str, *values: object) -> list[tuple[int, ...]]:
            return await books.database.run_in(connection, sql, *values)

        await run(_LOCK)
        known = await run(
            "SELECT credits FROM screenshots_payout WHERE job_id = $1 AND kind = $2", claim.job_id, claim.kind
        )
        if known:
            return int(known[0][0])
        [(of_job, of_month, ever)] = await run(_PAID, claim.account, claim.job_id, month)
        pays = max(
            0,
            min(
                claim.credits,
                claim.price - int(of_job),
                claim.most_per_month - int(of_month),
                spent - int(ever),
            ),
        )
        await run(
            "INSERT INTO screenshots_payout (job_id, kind, account, month, credits) VALUES ($1, $2, $3, $4, $5)",
            claim.job_id,
            claim.kind,
            claim.account,
            month,
            pays,
        )
        return pays


async def _spent(app: Holdfast, account: str) -> int:
    try:
        return (await app.credits.account(account)).spent
    except UsageError:  # it has no account, so it has paid for nothing
        return 0
