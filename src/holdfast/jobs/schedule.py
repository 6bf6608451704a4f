"""When a scheduled task runs: ticks by cron or by interval, and how missed ticks are made up for (E39).

A tick is a moment that follows from the schedule alone, so all schedulers compute the same ticks. The id of
its job is derived from the schedule's name and the tick, so any number of processes may enqueue it: it stays
one job.

On nights when clocks change, a cron that runs in every hour runs whenever the clock shows one of its times,
which is once an hour on those nights too. Any other cron runs once a day for each of its times: a skipped
time runs at the moment of the change, and a repeated time runs at its first showing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import takewhile
from typing import Literal, Protocol, get_args
from uuid import UUID

from cronsim import CronSim, CronSimError

from holdfast.errors import UsageError
from holdfast.jobs.job import JobId
from holdfast.values.duration import Duration, duration, format_duration
from holdfast.values.zones import first_showing, last_showing, zone_named

Missed = Literal["skip", "once", "all"]
MISSED: tuple[str, ...] = get_args(Missed)

#: A tick that is at most this late was not missed: the scheduler was busy, or has just been replaced.
ON_TIME = timedelta(minutes=1)
#: With missed="all", how many of the newest missed ticks are enqueued; older ones are skipped.
MOST_MISSED = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST = timedelta(seconds=1)
#: No time zone sets its clocks back by more than this.
_LONGEST_OVERLAP = timedelta(hours=3)
_SHORTHAND = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * sun",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
#: Growing spans to search backwards from now, so that the newest ticks are found without walking a long
#: absence.
_LOOKBACKS = [timedelta(hours=1), *(timedelta(days=days) for days in (1, 31, 366, 3660, 36_600))]


class When(Protocol):
    """A series of ticks. Its methods return the same answer in every process and at any time."""

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after *moment*, or None when there is none within fifty years."""

    def ticks_between(self, after: datetime, until: datetime, most: int = MOST_MISSED) -> list[datetime]:
        """Return the newest *most* ticks in (after, until], oldest first."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression by the wall clock of a zone: `Cron("0 7 * * mon-fri", zone="Europe/Berlin")`.

    The five fields are minute, hour, day of the month, month and day of the week. They take "*/5", "1,15",
    "mon-fri", "L" (the last day) and "mon#1" (the first Monday). "@hourly", "@daily", "@weekly", "@monthly"
    and "@yearly" are accepted too. When both kinds of day are given, a day needs to match only one of them.
    """

    expression: str
    zone: str = "UTC"
    _zone: tzinfo = field(init=False, repr=False, compare=False)
    _fields: str = field(init=False, repr=False, compare=False)
    _every_hour: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = _SHORTHAND.get(self.expression, self.expression)
        set_ = object.__setattr__
        set_(self, "_zone", zone_named(self.zone))
        try:
            if not isinstance(fields, str) or len(fields.split()) != 5:
                raise CronSimError("it does not have five fields")
            parsed = CronSim(fields, _EPOCH.replace(tzinfo=None))  # any wall clock will do
            next(parsed)
        except StopIteration:
            raise UsageError(f"cron {self.expression!r} never ticks; such a date does not exist") from None
        except (CronSimError, AssertionError, ValueError) as error:
            why = str(error).replace("Bad ", "bad ") or "not understood"
            raise UsageError(
                f"cron {str(self.expression)[:60]!r}: {why};"
                ' write minute hour day month weekday, e.g. "0 7 * * mon-fri" or "*/5 * * * *"'
            ) from None
        set_(self, "_fields", fields)
        set_(self, "_every_hour", len(parsed.hours) == 24)

    def next_after(self, moment: datetime) -> datetime | None:
        return next(self._ticks(moment), None)

    def ticks_between(self, after: datetime, until: datetime, most: int = MOST_MISSED) -> list[datetime]:
        newest: deque[datetime] = deque(maxlen=most)
        for back in _LOOKBACKS:
            begin = max(after, until - back)
            newest = deque(takewhile(lambda tick: tick <= until, self._ticks(begin)), maxlen=most)
            if begin == after or len(newest) == most:
                break
        return list(newest)

    def _ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield every tick after *after*, in UTC."""
        local = after.astimezone(self._zone)
        wall = local.replace(tzinfo=None, fold=0)
        if self._every_hour:
            # When the clocks are about to be set back, times that have been shown already will be shown
            # again.
            ahead = (after + _LONGEST_OVERLAP).astimezone(self._zone)
            if ahead.utcoffset() != local.utcoffset():
                wall -= _LONGEST_OVERLAP
            ticks = _every_showing(CronSim(self._fields, wall), self._zone)
        else:
            ticks = (first_showing(wall, self._zone) for wall in CronSim(self._fields, wall))
        last = after
        for tick in ticks:
            # In an overlap the wall clock goes back, and all times in one gap are the same tick.
            if tick > last:
                yield tick
                last = tick


def _every_showing(walls: Iterator[datetime], zone: tzinfo) -> Iterator[datetime]:
    """Yield in order each moment at which *zone* shows one of *walls*: two in an overlap, none in a gap."""
    again: list[datetime] = []
    for wall in walls:
        first = first_showing(wall, zone)
        if first.astimezone(zone).replace(tzinfo=None, fold=0) != wall:
            continue
        while again and again[0] <= first:
            yield heappop(again)
        yield first
        second = last_showing(wall, zone)
        if second != first:
            heappush(again, second)
    yield from sorted(again)


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval: `Every("5m")` ticks at :00, :05, …; with an *anchor*, counted from that moment."""

    interval: Duration
    anchor: datetime | None = None
    _span: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        span = duration(self.interval)
        if span < _SHORTEST:
            raise UsageError(f"every {self.interval!r} is too often; the shortest interval is 1s")
        if self.anchor is not None and self.anchor.tzinfo is None:
            raise UsageError(
                "anchor has no time zone; pass an aware datetime, e.g. datetime(2026, 1, 1, tzinfo=UTC)"
            )
        object.__setattr__(self, "_span", span)

    def next_after(self, moment: datetime) -> datetime | None:
        return self._tick(self._number(moment) + 1)

    def ticks_between(self, after: datetime, until: datetime, most: int = MOST_MISSED) -> list[datetime]:
        last = self._number(until)
        first = max(self._number(after) + 1, last - most + 1)
        return [self._tick(number) for number in range(first, last + 1)]

    def _number(self, moment: datetime) -> int:
        """Return the number of the last tick at or before *moment*."""
        return (moment - (self.anchor or _EPOCH)) // self._span

    def _tick(self, number: int) -> datetime:
        return ((self.anchor or _EPOCH) + number * self._span).astimezone(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A task that is enqueued at every tick of *when*, with the same arguments."""

    name: str
    task: str
    when: When
    missed: Missed = "once"
    payload: str = "{}"  #: JSON object of arguments by name
    queue: str | None = None  #: replaces the queue of the task
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.missed not in MISSED:
            raise UsageError(f"missed is {self.missed!r}; it is one of {', '.join(MISSED)}")
        if not isinstance(self.when, (Cron, Every)):
            raise UsageError(f"{self.when!r:.60} is not a schedule; write Cron(…) or Every(…)")


def due(schedule: Schedule, last: datetime | None, now: datetime) -> list[datetime]:
    """Return the ticks to enqueue at *now*, oldest first.

    After missed ticks, `missed="once"` returns the newest of them, "all" each of the newest `MOST_MISSED`,
    and "skip" none. The caller then records that all ticks up to *now* are handled, enqueued or not.

    Args:
        schedule: The schedule.
        last: The last tick that was handled; None for a new schedule.
        now: The current time.
    """
    if last is None or now <= last:
        return []
    match schedule.missed:
        case "all":
            return schedule.when.ticks_between(last, now, MOST_MISSED)
        case "once":
            return schedule.when.ticks_between(last, now, 1)
        case "skip":
            return schedule.when.ticks_between(max(last, now - ON_TIME), now, 1)


def tick_id(schedule: str, tick: datetime) -> JobId:
    """Return the id of the job for a tick: the same in every process and, like all ids, growing with time."""
    text = f"holdfast.schedule\x1f{schedule}\x1f{tick.astimezone(UTC).isoformat()}"
    digest = int.from_bytes(blake2b(text.encode(), digest_size=10).digest(), "big")
    milliseconds = max(0, (tick - _EPOCH) // timedelta(milliseconds=1))
    version_7 = milliseconds << 80 | 0x7 << 76 | (digest >> 68) << 64 | 0b10 << 62 | (digest & (1 << 62) - 1)
    return JobId(str(UUID(int=version_7)))


def describe(when: When) -> str:
    """Return a short text for tables, e.g. `0 7 * * mon-fri Europe/Berlin` or `every 5m`."""
    match when:
        case Cron():
            return when.expression if when.zone == "UTC" else f"{when.expression} {when.zone}"
        case Every():
            return f"every {format_duration(duration(when.interval))}"
    return str(when)
