"""When jobs that are queued for later will be due: how many in each piece of time, by dependency. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple


class Scheduled(NamedTuple):
    """The jobs of one dependency that will be due in one piece of time."""

    at: datetime  #: the begin of the piece
    dependency: str  #: empty: their task calls none
    retries: int  #: automatic retries
    delayed: int  #: jobs that were not attempted yet, or whose attempts were given back


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The jobs that will be due from now on, if nothing holds them."""

    at: datetime  #: now, by the store's clock
    bucket: timedelta  #: the length of a piece of time
    until: datetime  #: jobs that are due later were not counted
    is_capped: bool  #: whether *until* is earlier than was asked for, because there are very many jobs
    scheduled: list[Scheduled]  #: pieces with jobs, by time and dependency


class ForecastRow(NamedTuple):
    """What a store has counted: the jobs of one dependency and one piece of time, in one walk along an index."""

    walk: int
    place: int  #: the number of the piece
    dependency: str
    retries: int
    delayed: int
    last: datetime  #: when the last of them is due


def make_forecast(
    now: datetime, within: timedelta, bucket: timedelta, most: int, rows: Iterable[ForecastRow]
) -> Forecast:
    """Return the forecast from the rows of a store, whose walks end after *most* jobs each."""
    walks: dict[int, tuple[int, datetime]] = {}
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for walk, place, dependency, retries, delayed, last in rows:
        seen, latest = walks.get(walk, (0, now))
        walks[walk] = seen + retries + delayed, max(latest, last)
        before = found.get((place, dependency), (0, 0))
        found[place, dependency] = before[0] + retries, before[1] + delayed
    until = min((latest for seen, latest in walks.values() if seen >= most), default=now + within)
    return Forecast(
        at=now,
        bucket=bucket,
        until=until,
        is_capped=until < now + within,
        scheduled=[
            Scheduled(now + place * bucket, dependency, *counts)
            for (place, dependency), counts in sorted(found.items())
            if now + place * bucket <= until
        ],
    )
