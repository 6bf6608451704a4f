"""The report on promises in a calendar month (UTC), by customer (E76): due, broken and compensated."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from systems.screenshots.records import Books

_DUE = """SELECT account, tier, count(*) FROM screenshots_job
    WHERE due_at >= $1 AND due_at < $2 AND judged = 1 GROUP BY account, tier"""
_BROKEN = """SELECT account, tier, kind, count(*), sum(CASE WHEN compensated_at IS NULL THEN 0 ELSE credits END)
    FROM screenshots_breach WHERE due_at >= $1 AND due_at < $2 GROUP BY account, tier, kind"""


class Month(NamedTuple):
    """A calendar month (UTC)."""

    year: int
    month: int

    @classmethod
    def read(cls, text: str) -> Month | None:
        """Parse a month such as 2026-11; return None for any other text."""
        found = re.fullmatch(r"(20[0-9]{2})-(0[1-9]|1[0-2])", text, re.ASCII)
        return None if found is None else cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, at: datetime) -> Month:
        """Return the month of a date."""
        return cls(at.year, at.month)

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02}"

    @property
    def span(self) -> tuple[float, float]:
        """The start of the month and of the next one, in seconds since the epoch."""
        following = Month(self.year + self.month // 12, self.month % 12 + 1)
        first, last = (datetime(one.year, one.month, 1, tzinfo=UTC).timestamp() for one in (self, following))
        return first, last


async def report(books: Books, month: Month) -> dict[str, Any]:
    """Return an entry for each account and tier with promises that were due in *month*.

    `due` counts only pictures that retention has not removed; breaches are kept forever.
    """
    entries: dict[tuple[str, str], dict[str, Any]] = {}

    def entry(account: str, tier: str) -> dict[str, Any]:
        empty = {
            "account": account,
            "tier": tier,
            "due": 0,
            "broken": {"SUCCESS": 0, "RETRY": 0},
            "credits": 0,
        }
        return entries.setdefault((account, tier), empty)

    for account, tier, number in await books.run(_DUE, *month.span):
        entry(account, tier)["due"] = int(number)
    for account, tier, kind, number, paid in await books.run(_BROKEN, *month.span):
        customer = entry(account, tier)
        customer["broken"][kind] = int(number)
        customer["credits"] += int(paid)
    return {"month": str(month), "customers": [entries[key] for key in sorted(entries)]}
