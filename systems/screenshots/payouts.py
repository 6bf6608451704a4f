"""The compensation for broken promises, bounded so that no customer can earn credits (E76).

An amount is decided once, under a lock, and stored before it is granted. It is the smallest of: the amount
that the tier promises, the rest of the job's price, the rest of the account's monthly limit, and what the
account has spent beyond its earlier compensation. The last bound keeps an account from ever holding more
credits than it was given. The reasons are in docs/adr/0018-customers-pages.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from holdfast import Holdfast, UsageError
from holdfast.contrib.credits import Credits
from systems.screenshots.records import Books

# Held until the transaction ends. Without it, two concurrent decisions would both use the same rest of a
# bound.
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
    credits: int  #: that the tier promises for it
    price: int  #: of the job
    most_per_month: int  #: of the tier


async def decide(app: Holdfast, books: Books, claim: Claim, now: float) -> int:
    """Return the credits to pay for *claim*. Further calls for the same claim return the same number."""
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
        [(of_job, of_month, in_total)] = await run(_PAID, claim.account, claim.job_id, month)
        amount = max(
            0,
            min(
                claim.credits,
                claim.price - int(of_job),
                claim.most_per_month - int(of_month),
                spent - int(in_total),
            ),
        )
        await run(
            "INSERT INTO screenshots_payout (job_id, kind, account, month, credits) VALUES ($1, $2, $3, $4, $5)",
            claim.job_id,
            claim.kind,
            claim.account,
            month,
            amount,
        )
        return amount


async def _spent(app: Holdfast, account: str) -> int:
    try:
        return (await Credits.of(app).account(account)).spent
    except UsageError:  # there is no account, so nothing was paid
        return 0
