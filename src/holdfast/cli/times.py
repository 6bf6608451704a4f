"""Write times for people: "3 m ago", "2 h"."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return a time relative to now: "3 m ago", "in 2 h", "now"."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    if seconds > 0:
        return f"{span(math.floor(seconds))} ago"
    return f"in {span(_nearest(-seconds))}"


def _nearest(seconds: float) -> float:
    """Round to whole days, hours, minutes or seconds. Of a pause for 10m that was just made, "10 m" are left and not "9 m"."""
    size = next((size for size in (86_400, 3_600, 60) if seconds >= size), 1)
    return math.floor(seconds / size + 0.5) * size if size > 1 else math.ceil(seconds)


def span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or (unit != "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.3g} s"
