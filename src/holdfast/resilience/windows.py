"""When retries may start: windows by weekday and wall-clock time, in any time zone (E16).

A window has one occurrence on each of its days: from the first moment at which the clocks of the zone show
*start* to the last at which they show *end*. An end that is not after the start belongs to the next day. Each
occurrence is computed separately, so that nights on which clocks change need no special rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration
from holdfast.values.validation import several
from holdfast.values.zones import first_showing, last_showing, zone_named

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {name: number for names in (_DAYS, _NAMES) for number, name in enumerate(names)}
_TIME = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)", re.ASCII)
#: The span after an opening over which the retries that waited for it are spread.
RAMP = timedelta(minutes=5)
_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
#: A pattern of windows repeats weekly, or yearly when its zones change their clocks on different nights.
_WEEKS_AHEAD = 54
#: The moment at which a new pattern is checked: this module has no clock, and any year will do.
_ANY_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time of the week: `Window(days="mon-fri", start="18:00", end="08:00", zone="Europe/Berlin")`.

    *days* are the days on which it begins, as names and ranges: "mon-fri", "sat,sun", "fri-mon".
    """

    days: str | Sequence[str] = "mon-sun"
    start: str | time = "00:00"
    end: str | time = "24:00"
    zone: str = "UTC"
    _days: frozenset[int] = field(init=False, repr=False, compare=False)
    _opens: timedelta = field(init=False, repr=False, compare=False)  #: after midnight
    _closes: timedelta = field(init=False, repr=False, compare=False)
    _zone: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        opens, closes = _read_time("start", self.start), _read_time("end", self.end)
        if opens == _DAY:
            raise UsageError('start is "24:00"; the first time of a day is "00:00"')
        if opens == closes:
            raise UsageError(
                f'start and end are both "{self.start}"; a whole day is start="00:00", end="24:00"'
            )
        set_ = object.__setattr__
        if not isinstance(self.days, (str, list, tuple)):
            raise UsageError(f'days is {self.days!r:.40}; write e.g. "mon-fri" or ["sat", "sun"]')
        set_(self, "days", self.days if isinstance(self.days, str) else ",".join(map(str, self.days)))
        set_(self, "_days", _read_days(str(self.days)))
        set_(self, "_opens", opens)
        set_(self, "_closes", closes if closes > opens else closes + _DAY)
        set_(self, "_zone", zone_named(self.zone))

    def occurrence(self, day: date) -> tuple[datetime, datetime] | None:
        """Return begin and end of the occurrence on *day*, or None: not one of its days, or lost in a gap."""
        if day.weekday() not in self._days:
            return None
        midnight = datetime.combine(day, time())
        begin = first_showing(midnight + self._opens, self._zone)
        end = last_showing(midnight + self._closes, self._zone)
        return (begin, end) if begin < end else None

    def holds(self, moment: datetime) -> bool:
        """Return whether *moment* is in the window, which includes its begin and excludes its end."""
        today = moment.astimezone(self._zone).date()
        for day in (today - _DAY, today):
            occurrence = self.occurrence(day)
            if occurrence is not None and occurrence[0] <= moment < occurrence[1]:
                return True
        return False

    def edges(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the moments in (after, until] at which the window begins or ends."""
        # An occurrence may end on the next day. One more day on either side covers zones far from each other.
        day, last = after.astimezone(self._zone).date() - 2 * _DAY, until.astimezone(self._zone).date() + _DAY
        while day <= last:
            yield from (edge for edge in self.occurrence(day) or () if after < edge <= until)
            day += _DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """When retries may start: in any of *allow* (always, if it is empty) and in none of *deny*.

    Retries that had to wait are spread over *ramp* after the opening.
    """

    allow: Sequence[Window] = ()
    deny: Sequence[Window] = ()
    ramp: Duration = RAMP

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name in ("allow", "deny"):
            set_(self, name, several(name, getattr(self, name), Window, "Window(…)"))
        set_(self, "ramp", duration(self.ramp))
        if self.next_opening(_ANY_MOMENT) is None:
            raise UsageError("these windows never open; allow some time that is not denied as well")

    def open_at(self, moment: datetime) -> bool:
        """Return whether a retry may start at *moment*."""
        if any(window.holds(moment) for window in self.deny):
            return False
        return not self.allow or any(window.holds(moment) for window in self.allow)

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the first moment from *now* when a retry may start, or None if there is none in a year."""
        if self.open_at(now):
            return now
        return next((edge for edge in self._edges(now) if self.open_at(edge)), None)

    def next_closing(self, now: datetime) -> datetime | None:
        """Return the first moment from *now* when no retry may start, or None if there is none in a year."""
        if not self.open_at(now):
            return now
        return next((edge for edge in self._edges(now) if not self.open_at(edge)), None)

    def retry_at(self, due: datetime, chance: float, latest: datetime | None = None) -> datetime:
        """Return when a retry that is due at *due* may start: then, or after the next opening.

        After an opening it is at *chance* (0 to 1) of the ramp. The ramp ends early when the windows close,
        or at *latest*, after which the retry would be useless. An opening after *latest* is returned without
        a ramp.
        """
        opening = self.next_opening(due)
        if opening is None or opening == due:
            return due
        spread = duration(self.ramp)
        closing = self.next_closing(opening)
        for end in (closing, latest):
            if end is not None and end >= opening:
                spread = min(spread, end - opening)
        moved = opening + spread * chance
        # Rounding may yield the closing itself, at which no retry may start.
        return moved if closing is None or moved < closing else opening

    def _edges(self, after: datetime) -> Iterator[datetime]:
        """Yield in order every moment at which a window begins or ends, in the year after *after*."""
        windows = (*self.allow, *self.deny)
        for week in range(_WEEKS_AHEAD):
            begin = after + week * _WEEK
            yield from sorted({edge for window in windows for edge in window.edges(begin, begin + _WEEK)})


def _read_time(name: str, value: object) -> timedelta:
    if isinstance(value, time) and not value.second and not value.microsecond and value.tzinfo is None:
        return timedelta(hours=value.hour, minutes=value.minute)
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    span = timedelta(hours=int(found[1]), minutes=int(found[2])) if found else None
    if span is None or span > _DAY:
        raise UsageError(f'{name} is {str(value)[:40]!r}; it is a time of day, "00:00" to "24:00"')
    return span


def _read_days(text: str) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if first not in _NUMBERS or (dash and last not in _NUMBERS):
            raise UsageError(
                f'days is {text[:60]!r}; write names and ranges of {", ".join(_DAYS)}, e.g. "mon-fri" or "sat,sun"'
            )
        begin, end = _NUMBERS[first], _NUMBERS[last] if dash else _NUMBERS[first]
        numbers.update(number % 7 for number in range(begin, begin + (end - begin) % 7 + 1))
    return frozenset(numbers)
