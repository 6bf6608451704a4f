"""Where claims on PostgreSQL begin to look, so that they do not walk over all who have left the line."""

from __future__ import annotations

from typing import Any

from holdfast.resilience.fairness import UNPLACED
from holdfast.stores.postgres.claims import Cursors
from holdfast.testing import ManualClock

BUSY, EMPTY = 1, 2
PLACE = UNPLACED + 70  #: in a line without turns of owners


def claimed(lane: int, place: int) -> dict[str, Any]:
    return {"lane": lane, "prio": 0, "ord": place, "job_id": f"job {place}"}


def starts(cursors: Cursors, lane: int) -> list[int]:
    """The places that a claim of this lane begins at."""
    return cursors.probes([lane], [])[2]


def test_lines_without_anybody_send_no_claim_of_others_back_to_the_beginning() -> None:  # E51
    clock = ManualClock()
    cursors = Cursors(clock)
    [beginning] = starts(cursors, BUSY)
    cursors.advance([claimed(BUSY, PLACE)])
    assert starts(cursors, BUSY) == [PLACE]
    starts(cursors, EMPTY)
    cursors.advance([])
    assert cursors.are_at_start([EMPTY])
    cursors.restart({EMPTY})
    assert starts(cursors, BUSY) == [PLACE]
    clock.advance("1s")  # somebody may have committed late, at a lower place
    starts(cursors, EMPTY)
    cursors.advance([])
    assert starts(cursors, BUSY) == [beginning]
    cursors.restart({BUSY})
    assert cursors.are_at_start([BUSY, EMPTY])
