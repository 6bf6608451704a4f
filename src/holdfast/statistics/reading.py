"""Make reports of figures: which range and step a question is about, and what the rows of the store say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.statistics.metrics import (
    COSTS,
    COUNTS,
    DAY,
    HISTOGRAMS,
    HOUR,
    MINUTE,
    OTHER,
    SAMPLED,
    STEPS,
    Metric,
    SeriesKey,
    Step,
)
from holdfast.values.duration import Duration, duration, format_duration
from holdfast.values.histogram import percentile

#: The fields by which figures can be split.
DIMENSIONS = SeriesKey._fields
#: The percentiles of a histogram, by the ends of their names.
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: What `series` can read: the name of a metric, or of a percentile of a histogram, such as `waited_p95`.
PERCENTILES = {
    f"{metric.name}_{name}": (metric, share) for metric in HISTOGRAMS for name, share in SHARES.items()
}
NAMES = (*(metric.name for metric in (*COUNTS, *COSTS, *SAMPLED)), *PERCENTILES)
#: A series has at most this many periods, and at most this many lines; the smaller lines are added up in a last one.
MOST_PERIODS, MOST_LINES = 3000, 20
#: The default step has at most this many periods.
_FEW = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A range of whole periods."""

    since: datetime
    until: datetime  #: exclusive
    step: Step

    def periods(self) -> Iterator[datetime]:
        at = self.since
        while at < self.until:
            yield at
            at += self.step.span


class Percentiles(NamedTuple):
    """How long something took, in milliseconds; None where nothing was counted."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What happened in a range, and how things stand."""

    since: datetime
    until: datetime
    lag: timedelta  #: how old the oldest event is that is not counted yet
    counts: Mapping[str, int]  #: `enqueued`, `completed`, …
    cost_first: float  #: of first attempts
    cost_retries: float  #: of all later attempts
    succeeded_at: Mapping[int, int]  #: completions by the number of the attempt
    waited: Percentiles  #: from when a job was due to its claim
    ran: Percentiles  #: attempts
    took: Percentiles  #: from the enqueue to the completion
    samples: Mapping[
        str, float
    ]  #: the newest ones: `backlog`, `running`, `oldest` (seconds), `holds`, `workers`


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticLine:
    """The values of one queue, task, dependency or code, one for each period."""

    name: str  #: '' if the question does not split
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticSeries:
    """One metric over time."""

    metric: str
    step: str
    at: tuple[datetime, ...]  #: when each period began
    lines: tuple[StatisticLine, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakdownRow:
    """What happened in a range to one queue, task, dependency or code."""

    name: str
    counts: Mapping[str, int]
    cost_first: float
    cost_retries: float
    waited: Percentiles
    ran: Percentiles
    took: Percentiles


class FigureRow(NamedTuple):
    """Figures of one period that are added up over series."""

    at: datetime
    name: str
    metric: Metric
    bucket: int
    value: float


# -- what is asked ------------------------------------------------------------------------------------------------------
def time_range(
    since: Duration | datetime, until: Duration | datetime | None, step: str | None, now: datetime
) -> TimeRange:
    """Return the range that a question means.

    Raises:
        UsageError: The range is empty, or the store has no figures of this step for it, or too many.
    """
    begin, end = _moment("since", since, now), now if until is None else _moment("until", until, now)
    if begin >= end:
        raise UsageError(
            f"since ({begin:%Y-%m-%d %H:%M}) is not before until ({end:%Y-%m-%d %H:%M}); swap them"
        )
    chosen = _step_named(step) if step is not None else _best_step(begin, end, now)
    if begin < now - chosen.keep - chosen.span:
        kept = format_duration(chosen.keep)
        raise UsageError(
            f"figures of a {chosen.name} are kept for {kept}; begin later, or choose a longer step"
        )
    found = TimeRange(since=chosen.floor(begin), until=chosen.ceiling(end), step=chosen)
    count = (found.until - found.since) // chosen.span
    if count > MOST_PERIODS:
        raise UsageError(
            f"this range has {count:,} periods, more than {MOST_PERIODS:,}; choose a longer step or a shorter range"
        )
    return found


def _moment(name: str, value: Duration | datetime, now: datetime) -> datetime:
    if isinstance(value, str) and "T" in value:
        try:  # in a query of HTTP a plus sign is a space
            value = datetime.fromisoformat(value.replace(" ", "+"))
        except ValueError:
            raise UsageError(
                f"{name} is {value!r:.60}; write a duration such as 1h, or a moment such as 2026-05-04T10:00:00Z"
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(f"{name} is {value}; give it a time zone, e.g. datetime.now(UTC)")
        return value.astimezone(now.tzinfo)
    try:
        return now - duration(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _step_named(name: str) -> Step:
    for step in STEPS:
        if step.name == name:
            return step
    raise UsageError(f"step is {name!r:.60}; it is minute, hour or day")


def _best_step(begin: datetime, end: datetime, now: datetime) -> Step:
    """Return the shortest step that is kept for so long and has few periods."""
    for step in (MINUTE, HOUR):
        if begin >= now - step.keep and (end - begin) / step.span <= _FEW:
            return step
    return DAY if begin < now - HOUR.keep or (end - begin) / HOUR.span > MOST_PERIODS else HOUR


def metric_named(name: str) -> tuple[Metric, float | None]:
    """Return a metric by its name, with the share if the name is that of a percentile. Raise `UsageError` for others."""
    if name in PERCENTILES:
        return PERCENTILES[name]
    if name not in NAMES:
        raise UsageError(f"there is no metric {name!r:.60}; there are {', '.join(NAMES)}")
    return Metric[name], None


def dimension_named(name: str) -> str:
    """Check a field to split by. Raise `UsageError` for one that there is not."""
    if name not in DIMENSIONS:
        raise UsageError(f"by is {name!r:.60}; it is one of {', '.join(DIMENSIONS)}")
    return name


def _rounded(milliseconds: float | None) -> float | None:
    """Return a duration without digits that it does not have."""
    return None if milliseconds is None else round(milliseconds, 1)


# -- what is answered ---------------------------------------------------------------------------------------------------
class Totals:
    """The figures of a range, added up."""

    def __init__(self) -> None:
        self.values: dict[Metric, float] = {}
        self.buckets: dict[Metric, dict[int, float]] = {}
        self.newest: dict[Metric, tuple[datetime, float]] = {}  #: of samples

    def add(self, row: FigureRow) -> None:
        self.values[row.metric] = self.values.get(row.metric, 0.0) + row.value
        counts = self.buckets.setdefault(row.metric, {})
        counts[row.bucket] = counts.get(row.bucket, 0.0) + row.value
        self.newest[row.metric] = max(self.newest.get(row.metric, (row.at, row.value)), (row.at, row.value))

    def counts(self) -> dict[str, int]:
        return {metric.name: round(self.values.get(metric, 0)) for metric in COUNTS}

    def cost(self, metric: Metric) -> float:
        return round(self.values.get(metric, 0.0), 9)

    def percentiles(self, metric: Metric) -> Percentiles:
        counts = self.buckets.get(metric, {})
        return Percentiles(*(_rounded(percentile(counts, share)) for share in SHARES.values()))


def overview_of(rows: Iterable[FigureRow], range_: TimeRange, lag: timedelta) -> Overview:
    totals = Totals()
    for row in rows:
        totals.add(row)
    return Overview(
        since=range_.since,
        until=range_.until,
        lag=lag,
        counts=totals.counts(),
        cost_first=totals.cost(Metric.cost_first),
        cost_retries=totals.cost(Metric.cost_retries),
        succeeded_at={
            attempt: round(count)
            for attempt, count in sorted(totals.buckets.get(Metric.succeeded_at, {}).items())
        },
        waited=totals.percentiles(Metric.waited),
        ran=totals.percentiles(Metric.ran),
        took=totals.percentiles(Metric.took),
        samples={metric.name: totals.newest[metric][1] for metric in SAMPLED if metric in totals.newest},
    )


def breakdown_of(rows: Iterable[FigureRow]) -> list[BreakdownRow]:
    """Return a row for each name, those with most attempts first."""
    totals: dict[str, Totals] = {}
    for row in rows:
        totals.setdefault(row.name, Totals()).add(row)
    found = [
        BreakdownRow(
            name=name,
            counts=one.counts(),
            cost_first=one.cost(Metric.cost_first),
            cost_retries=one.cost(Metric.cost_retries),
            waited=one.percentiles(Metric.waited),
            ran=one.percentiles(Metric.ran),
            took=one.percentiles(Metric.took),
        )
        for name, one in totals.items()
    ]
    return sorted(found, key=lambda row: (-sum(row.counts.values()), row.name))


def series_of(name: str, rows: Iterable[FigureRow], range_: TimeRange) -> StatisticSeries:
    """Return the values of one metric for each period and each name. A period without events counts 0, and has no percentile."""
    metric, share = metric_named(name)
    periods = tuple(range_.periods())
    found: dict[str, dict[datetime, dict[int, float]]] = {}
    for row in rows:
        found.setdefault(row.name, {}).setdefault(row.at, {})[row.bucket] = row.value
    lines = [
        (key, [_value(metric, share, by_time.get(at, {})) for at in periods])
        for key, by_time in _few(found, metric).items()
    ]
    return StatisticSeries(
        metric=name,
        step=range_.step.name,
        at=periods,
        lines=tuple(StatisticLine(name=key, values=tuple(values)) for key, values in lines),
    )


def _few(
    found: dict[str, dict[datetime, dict[int, float]]], metric: Metric
) -> dict[str, dict[datetime, dict[int, float]]]:
    """Return the largest lines, and the others as one line."""

    def size(name: str) -> float:
        return sum(sum(counts.values()) for counts in found[name].values())

    names = sorted(found, key=lambda name: (-size(name), name))
    kept = {name: found[name] for name in names[:MOST_LINES] if name != OTHER.queue}
    rest: dict[datetime, dict[int, float]] = {}
    for name in names:
        if name in kept:
            continue
        for at, counts in found[name].items():
            for bucket, value in counts.items():
                sums = rest.setdefault(at, {})
                sums[bucket] = _merged(metric, sums.get(bucket, 0.0), value)
    return {**kept, OTHER.queue: rest} if rest else kept


def _merged(metric: Metric, one: float, other: float) -> float:
    return max(one, other) if metric in (Metric.oldest, Metric.breaker) else one + other


def _value(metric: Metric, share: float | None, counts: Mapping[int, float]) -> float | None:
    if share is not None:
        return _rounded(percentile(counts, share))
    if not counts and metric in SAMPLED:
        return None
    return sum(counts.values())
