"""The rows of many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import Holdfast, JobRow


async def rows_of(app: Holdfast, ids: Sequence[str]) -> dict[str, JobRow]:
    """By their ids; those that are no jobs any more are missing."""
    rows: dict[str, JobRow] = {}
    after: str | None = None
    while True:
        page = await app.jobs(ids=ids, after=after, limit=100)
        rows |= {row.id: row for row in page.rows}
        if (after := page.next) is None:
            return rows
