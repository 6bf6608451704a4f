"""How a learner is doing: counted from what was completed in time. A late result is in no job, so it is in no figure (G6)."""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast

_PAGE = 200


async def progress_of(app: Holdfast, owner: str | None) -> dict[str, Any]:
    """By skill: how many were graded, and the mean of their overall bands."""
    bands: dict[str, list[float]] = {}
    after: str | None = None
    where = {} if owner is None else {"owner": owner}
    while True:
        page = await app.jobs(task="grade", state="complete", after=after, limit=_PAGE, **where)
        for row in page.rows:
            if row.result is not None:
                bands.setdefault(row.payload["skill"], []).append(float(row.result["overall"]))
        if page.next is None:
            break
        after = page.next
    return {
        skill: {"graded": len(found), "mean": round(sum(found) / len(found), 2)}
        for skill, found in sorted(bands.items())
    }
