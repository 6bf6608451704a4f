"""Time zones by IANA name, and the moments at which a wall clock shows a given time.

When the clocks change, a wall clock skips times (the gap) or shows them twice (the overlap). A time in the
gap stands for the moment of the change. A time in the overlap has a first and a last showing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from holdfast.errors import UsageError
from holdfast.values.suggest import suggest


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    """Return the zone with this IANA name; raise `UsageError` with similar names when there is none."""
    if name == "UTC":  # works without installed zone files
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        known = available_timezones()
    hint = 'write an IANA name such as "Europe/Berlin" or "UTC"'
    if not known:
        hint = "there are no zone files here; install the package tzdata"
    elif isinstance(name, str) and suggest(name, known).startswith("did"):
        hint = suggest(name, known)
    raise UsageError(f"zone is {str(name)[:60]!r}, which is not a time zone; {hint}")


def first_showing(wall: datetime, zone: tzinfo) -> datetime:
    """Return the first moment (UTC) at which *zone* shows *wall*; in a gap, the moment of the change."""
    return _moment(wall, zone, fold=0)


def last_showing(wall: datetime, zone: tzinfo) -> datetime:
    """Return the last moment (UTC) at which *zone* shows *wall*; in a gap, the moment of the change."""
    return _moment(wall, zone, fold=1)


def _moment(wall: datetime, zone: tzinfo, fold: int) -> datetime:
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return moment
    # *wall* is in a gap: its two readings lie on either side of the change.
    other = wall.replace(tzinfo=zone, fold=1 - fold).astimezone(UTC)
    return _change_between(min(moment, other), max(moment, other), zone)


def _change_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the first moment after *before* at which *zone* has the UTC offset that it has at *after*."""
    new = after.astimezone(zone).utcoffset()
    second = timedelta(seconds=1)
    while after - before > second:
        middle = before + (after - before) // second // 2 * second
        if middle.astimezone(zone).utcoffset() == new:
            after = middle
        else:
            before = middle
    return after
