"""Wall clocks: zones by their IANA names, and the moments at which a wall clock shows a given time.

When the clocks are changed a wall clock leaves times out (the gap) or shows them twice (the overlap). A time in the gap
is taken to be the moment of the change; of one in the overlap there is a first and a last showing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from holdfast.domain.suggest import suggest
from holdfast.errors import UsageError


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    """The zone of this IANA name, else a `UsageError` with the names that are near."""
    if name == "UTC":  # known also where no zone files are installed
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
    raise UsageError(f"zone is {str(name)[:60]!r}, which is none; {hint}")


def first_showing(wall: datetime, zone: tzinfo) -> datetime:
    """The first moment (UTC) at which clocks in *zone* show *wall*; in the gap, the moment of the change."""
    return _moment(wall, zone, fold=0)


def last_showing(wall: datetime, zone: tzinfo) -> datetime:
    """The last such moment."""
    return _moment(wall, zone, fold=1)


def _moment(wall: datetime, zone: tzinfo, fold: int) -> datetime:
    moment = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return moment
    # Nobody's clock ever shows it: the two readings of *wall* lie on both sides of the change.
    other = wall.replace(tzinfo=zone, fold=1 - fold).astimezone(UTC)
    return _change_between(min(moment, other), max(moment, other), zone)


def _change_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The first moment after *before* at which *zone* has the offset it has at *after*."""
    new = after.astimezone(zone).utcoffset()
    second = timedelta(seconds=1)
    while after - before > second:
        middle = before + (after - before) // second // 2 * second
        if middle.astimezone(zone).utcoffset() == new:
            after = middle
        else:
            before = middle
    return after
