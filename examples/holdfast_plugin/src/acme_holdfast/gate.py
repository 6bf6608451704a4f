"""A gate: is asked about a lane before jobs are claimed from it. A pure function: the time comes with the question."""

from __future__ import annotations

from datetime import UTC

from holdfast import Admit, GateRequest, Hold, Reject

MORNING, EVENING = 6, 20  # UTC


def quiet_hours(asking: GateRequest) -> Admit | Hold | Reject:
    """Bulk work waits for the evening."""
    now = asking.now.astimezone(UTC)
    if asking.lane.queue != "bulk" or not MORNING <= now.hour < EVENING:
        return Admit()
    evening = now.replace(hour=EVENING, minute=0, second=0, microsecond=0)
    return Hold(evening, f"bulk work waits until {EVENING}:00 UTC")
