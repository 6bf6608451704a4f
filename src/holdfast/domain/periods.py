"""The periods that quotas are counted in: days and months of UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

PERIODS = ("day", "month")


def period_begins(period: str, now: datetime) -> datetime:
    """When the *period* ("day", "month") that *now* is in began."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if period == "day" else day.replace(day=1)


def period_ends(period: str, now: datetime) -> datetime:
    """When the next one begins."""
    begins = period_begins(period, now)
    if period == "day":
        return begins + timedelta(days=1)
    return period_begins("month", begins + timedelta(days=32))
