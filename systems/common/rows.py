"""Read many job rows at once, and find the failure that a row is being retried for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast, JobRow, State


async def rows_of(app: Holdfast, ids: Sequence[str]) -> dict[str, JobRow]:
    """Return the rows of *ids*, by id. Jobs that no longer exist are missing from the result."""
    rows: dict[str, JobRow] = {}
    after: str | None = None
    while True:
        page = await app.jobs.list(ids=ids, after=after, limit=100)
        rows |= {row.id: row for row in page.rows}
        if (after := page.next) is None:
            return rows


def failure_before(row: JobRow) -> dict[str, Any] | None:
    """Return the failure that a job is being retried for. Return None if there is none or the job has ended.

    A manual retry counts attempts from 1 again but keeps the row's last failure. A failure whose attempt
    number is still to come is therefore from before that retry, and is left out.
    """
    if row.last_failure is None or row.state not in (State.QUEUED, State.PROCESSING):
        return None
    ended = row.attempt - 1 if row.state is State.PROCESSING else row.attempt
    return row.last_failure if row.last_failure.get("attempt", 0) <= ended else None
