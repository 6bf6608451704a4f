"""Rows of jobs: many at once, and the failure that one is tried again for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast, JobRow, State


async def rows_of(app: Holdfast, ids: Sequence[str]) -> dict[str, JobRow]:
    """By their ids; those that are no jobs any more are missing."""
    rows: dict[str, JobRow] = {}
    after: str | None = None
    while True:
        page = await app.jobs(ids=ids, after=after, limit=100)
        rows |= {row.id: row for row in page.rows}
        if (after := page.next) is None:
            return rows


def failure_before(row: JobRow) -> dict[str, Any] | None:
    """Return the failure that a job will be, or is being, tried again for; None for one that has ended.

    The row keeps its last failure over a manual retry, which counts attempts anew. So a failure of an attempt that is still
    to come belongs to the run before, and is left out.
    """
    if row.last_failure is None or row.state not in (State.QUEUED, State.PROCESSING):
        return None
    ended = row.attempt - 1 if row.state is State.PROCESSING else row.attempt
    return row.last_failure if row.last_failure.get("attempt", 0) <= ended else None
