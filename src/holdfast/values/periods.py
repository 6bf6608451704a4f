"""The periods over which quotas are counted: days and months in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def period_begins(period: str, now: datetime) -> datetime:
    """Return the start of the *period* ("day" or "month") that contains *now*."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if period == "day" else day.replace(day=1)


def period_ends(period: str, now: datetime) -> datetime:
    """Return the end of the *period* that contains *now*, which is the start of the next one."""
    begins = period_begins(period, now)
    if period == "day":
        return begins + timedelta(days=1)
    return period_begins("month", begins + timedelta(days=32))
