"""The promises of one calendar month (UTC), by customer (E76): how many were due, how many were broken, what was paid."""

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
    year: int
    month: int

    @classmethod
    def read(cls, text: str) -> Month | None:
        """Return the month that is written like 2026-11; None for anything else."""
        found = re.fullmatch(r"(20[0-9]{2})-(0[1-9]|1[0-2])", text, re.ASCII)
        return None if found is None else cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, at: datetime) -> Month:
        return cls(at.year, at.month)

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02}"

    @property
    def span(self) -> tuple[float, float]:
        """Return its first moment and that of the next month, in seconds since the epoch."""
        following = Month(self.year + self.month // 12, self.month % 12 + 1)
        first, last = (datetime(one.year, one.month, 1, tzinfo=UTC).timestamp() for one in (self, following))
        return first, last


async def report(books: Books, month: Month) -> dict[str, Any]:
    """Return a line for each account and tier with promises that were due in *month*.

    *due* counts pictures that are still on record; breaches are kept for ever.
    """
    lines: dict[tuple[str, str], dict[str, Any]] = {}

    def line(account: str, tier: str) -> dict[str, Any]:
        new = {"account": account, "tier": tier, "due": 0, "broken": {"SUCCESS": 0, "RETRY": 0}, "credits": 0}
        return lines.setdefault((account, tier), new)

    for account, tier, number in await books.run(_DUE, *month.span):
        line(account, tier)["due"] = int(number)
    for account, tier, kind, number, paid in await books.run(_BROKEN, *month.span):
        found = line(account, tier)
        found["broken"][kind] = int(number)
        found["credits"] += int(paid)
    return {"month": str(month), "customers": [lines[key] for key in sorted(lines)]}
