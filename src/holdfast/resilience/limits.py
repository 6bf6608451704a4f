"""Limits of queues, tasks, owners and keys on concurrency and rate, and quotas of owners (E18, E26)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.errors import UsageError
from holdfast.values.duration import duration, format_duration
from holdfast.values.validation import number, whole

_UNITS = {
    word: span
    for words, span in (
        ("s sec second", timedelta(seconds=1)),
        ("m min minute", timedelta(minutes=1)),
        ("h hour", timedelta(hours=1)),
        ("d day", timedelta(days=1)),
    )
    for word in words.split()
}
_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\S+)\s*", re.ASCII)
_MOST = 1_000_000
#: The highest concurrency of one owner or key: each slot has a place of its own in the store.
MOST_SLOTS = 1000


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of starts per span of time: `Rate.read("100/min")`, `Rate.read("5/10s")`."""

    count: int
    per: timedelta

    @classmethod
    def read(cls, value: object) -> Rate:
        """Return the rate that *value* spells; raise `UsageError` if it cannot be read."""
        if isinstance(value, Rate):
            return value
        found = _RATE.fullmatch(value) if isinstance(value, str) else None
        try:
            if found is None or int(found[1]) == 0:
                raise UsageError("")
            per = _UNITS.get(found[2]) or duration(found[2])
            if per < timedelta(seconds=1):
                raise UsageError("")
        except UsageError:
            raise UsageError(
                f'rate is {str(value)[:40]!r}; write a count and a time, e.g. "100/min", "10/s" or "5/10s"'
            ) from None
        return cls(int(found[1]), per)

    @property
    def per_second(self) -> float:
        return self.count / self.per.total_seconds()

    def __str__(self) -> str:
        return f"{self.count}/{format_duration(self.per)}"


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """The most jobs that run at once, and the rate at which they start; None: no limit."""

    concurrency: int | None
    rate: Rate | None

    def __init__(self, *, concurrency: int | None = None, rate: Rate | str | None = None) -> None:
        if concurrency is not None:
            whole("concurrency", concurrency, 1, _MOST)
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "rate", None if rate is None else Rate.read(rate))

    def exceeds(self, whole: Limit) -> str | None:
        """Return which part of this limit, "concurrency" or "rate", is above that of the *whole*, or None."""
        most = whole.concurrency
        if self.concurrency is not None and most is not None and self.concurrency > most:
            return "concurrency"
        if self.rate is not None and whole.rate is not None and self.rate.per_second > whole.rate.per_second:
            return "rate"
        return None


@dataclass(frozen=True, slots=True, init=False)
class Limits(Limit):
    """The limit of a queue or a task as a whole, and the limits of each owner and key within it."""

    per_owner: Limit
    per_key: Limit

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        rate: Rate | str | None = None,
        per_owner: Limit | None = None,
        per_key: Limit | None = None,
    ) -> None:
        # Not `super()`: a dataclass with slots creates the class twice, and `super()` would use the first
        # one.
        Limit.__init__(self, concurrency=concurrency, rate=rate)
        for name, part in (("per_owner", per_owner), ("per_key", per_key)):
            if part is not None and not isinstance(part, Limit):
                raise UsageError(f"{name} is {part!r:.60}; it is a Limit(concurrency=…, rate=…)")
            part = part or Limit()
            if what := part.exceeds(self):
                raise UsageError(f"{name}.{what} is above {what}; a share cannot be more than the whole")
            if part.concurrency is not None and part.concurrency > MOST_SLOTS:
                raise UsageError(f"{name}.concurrency is {part.concurrency}; it is at most {MOST_SLOTS}")
            object.__setattr__(self, name, part)


def queue_limits(limits: Limits) -> Limits:
    """Return *limits* if a queue can have them; raise `UsageError` for a concurrency per owner or key."""
    for name in ("per_owner", "per_key"):
        if getattr(limits, name).concurrency is not None:
            raise UsageError(
                f"{name}.concurrency cannot be set on a queue; set it on the task, or use {name}.rate"
            )
    return limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most jobs, cost and manual retries of an owner in a calendar day and month (UTC); None: no limit.

    A job beyond the quota waits until the next period. A manual retry beyond it is refused.
    """

    per_day: int | None = None
    per_month: int | None = None
    cost_per_day: float | None = None
    cost_per_month: float | None = None
    manual_retries_per_day: int | None = None
    manual_retries_per_month: int | None = None

    def __post_init__(self) -> None:
        for name in ("per_day", "per_month", "manual_retries_per_day", "manual_retries_per_month"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 0, 10**12)
        for name in ("cost_per_day", "cost_per_month"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(name, getattr(self, name), 0, 1e12))
        for counted in ("", "cost_", "manual_retries_"):
            day, month = f"{counted}per_day", f"{counted}per_month"
            most, total = getattr(self, day), getattr(self, month)
            if most is not None and total is not None and most > total:
                raise UsageError(f"{day} is {most:g}, more than {month} ({total:g}); one of them never binds")

    @property
    def limits_manual_retries(self) -> bool:
        return self.manual_retries_per_day is not None or self.manual_retries_per_month is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPolicy:
    """The policy of one owner.

    *weight* is its weight in fair queuing, *limit* its limit over all queues, *quota* the name of its quota,
    and *max_attempts* the most attempts of its jobs.
    """

    weight: float = 1.0
    limit: Limit = field(default_factory=Limit)
    quota: str | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", number("weight", self.weight, 0.001, 1000))
