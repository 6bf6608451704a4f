"""A gate: decides whether jobs may be claimed from a lane.

It is a pure function, and gets the time as an argument.
"""

from __future__ import annotations

from datetime import UTC

from holdfast.plugins import Admit, GateRequest, Hold, Reject

MORNING, EVENING = 6, 20  # UTC


def quiet_hours(asking: GateRequest) -> Admit | Hold | Reject:
    """Hold the queue `bulk` until the evening."""
    now = asking.now.astimezone(UTC)
    if asking.lane.queue != "bulk" or not MORNING <= now.hour < EVENING:
        return Admit()
    evening = now.replace(hour=EVENING, minute=0, second=0, microsecond=0)
    return Hold(evening, f"bulk work waits until {EVENING}:00 UTC")
