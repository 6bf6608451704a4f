"""The progress of a learner, counted from completed jobs.

A late result completes no job, so it does not count (G6).
"""

from __future__ import annotations

from typing import Any

from holdfast import Holdfast

_PAGE = 200


async def progress_of(app: Holdfast, owner: str | None) -> dict[str, Any]:
    """Return the number of graded submissions and the mean of their overall bands, by skill."""
    bands: dict[str, list[float]] = {}
    after: str | None = None
    while True:
        page = await app.jobs.list(task="grade", state="complete", after=after, limit=_PAGE, owner=owner)
        for row in page.rows:
            if row.result is not None:
                bands.setdefault(row.payload["skill"], []).append(float(row.result["overall"]))
        if page.next is None:
            break
        after = page.next
    return {
        skill: {"graded": len(values), "mean": round(sum(values) / len(values), 2)}
        for skill, values in sorted(bands.items())
    }
