"""Turn what a store has counted in its event log into figures: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.engine.ports import Row
from holdfast.jobs.moves import Kind
from holdfast.statistics.metrics import OTHER, SAMPLES, STEPS, Figure, Metric, SeriesKey, Step

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The numbers that `fold` gives to histograms, beside those of kinds.
_HISTOGRAMS = {101: Metric.waited, 102: Metric.ran, 103: Metric.took}
#: The metric that counts the events of a kind.
_COUNTED_BY = {
    Kind.queued: Metric.enqueued,
    Kind.processing: Metric.started,
    Kind.complete: Metric.completed,
    Kind.retry: Metric.retried,
    Kind.manual_retry: Metric.retried_manually,
    Kind.redriven: Metric.retried_manually,
    Kind.failed: Metric.failed,
    Kind.rejected: Metric.failed,
    Kind.cancelled: Metric.cancelled,
    Kind.timed_out: Metric.timed_out,
    Kind.reclaimed: Metric.reclaimed,
    Kind.released: Metric.released,
    Kind.snoozed: Metric.released,
    Kind.late_result: Metric.late,
}
#: The kinds of events whose cost counts: the ends of attempts that were reported, or whose cost is known without.
_COSTED = frozenset(
    {
        Kind.complete,
        Kind.retry,
        Kind.failed,
        Kind.reclaimed,
        Kind.released,
        Kind.snoozed,
        Kind.late_result,
    }
)
#: Later attempts are counted as this one.
LAST_ATTEMPT = 100

Figures = dict[Figure, float]


class Counted(NamedTuple):
    """What a store has counted: the figures of its minutes, and where to go on."""

    figures: Mapping[tuple[datetime, SeriesKey, Metric, int], float]
    rows: int  #: how many rows of the event log were read
    last: int  #: the number of the last one; 0: none was read


def read_counts(rows: Iterable[Row]) -> Counted:
    """Return the rows of `fold` as figures of minutes."""
    figures: dict[tuple[datetime, SeriesKey, Metric, int], float] = {}
    read, last = 0, 0
    for row in rows:
        number, minute, queue, task, dependency, attempt, code, bucket, count, cost = row
        if number == 0:
            read, last = int(count), minute
            continue
        at = _EPOCH + timedelta(minutes=minute)
        plain, coded = SeriesKey(queue, task, dependency), SeriesKey(queue, task, dependency, code)
        for series, metric, place, value in _figures_of(
            number, plain, coded, attempt, int(bucket), count, cost
        ):
            key = (at, series, metric, place)
            figures[key] = figures.get(key, 0.0) + value
    return Counted(figures, read, last)


def _figures_of(
    number: int, plain: SeriesKey, coded: SeriesKey, attempt: int, bucket: int, count: float, cost: float
) -> Iterator[tuple[SeriesKey, Metric, int, float]]:
    if number in _HISTOGRAMS:
        yield plain, _HISTOGRAMS[number], bucket, count
        return
    kind = Kind(number)
    if kind in _COUNTED_BY:
        yield coded, _COUNTED_BY[kind], 0, count
    if kind is Kind.complete:
        yield plain, Metric.succeeded_at, min(attempt, LAST_ATTEMPT), count
    if kind in _COSTED and cost:
        yield plain, Metric.cost_first if attempt <= 1 else Metric.cost_retries, 0, cost


def spread(counted: Counted, horizon: datetime | None = None) -> Figures:
    """Return the figures of minutes, hours and days that the figures of minutes add to, without periods that begin before *horizon*."""
    found: Figures = {}
    for step in STEPS:
        first = None if horizon is None else step.ceiling(horizon)
        for (at, series, metric, bucket), value in counted.figures.items():
            begins = step.floor(at)
            if first is None or begins >= first:
                figure = Figure(step, begins, series, metric, bucket)
                found[figure] = found.get(figure, 0.0) + value
    return found


def capped(figures: Figures, present: Mapping[tuple[Step, datetime], Set[SeriesKey]], most: int) -> Figures:
    """Return *figures* with the series of each period that exceed *most* counted in `OTHER`.

    SeriesKey that are *present* in a period stay; of the new ones the first by name have room.
    """
    new: dict[tuple[Step, datetime], set[SeriesKey]] = {}
    for figure in figures:
        period = figure.step, figure.at
        if figure.series not in present.get(period, ()):
            new.setdefault(period, set()).add(figure.series)
    surplus = {
        period: set(sorted(names)[max(most - len(present.get(period, ())), 0) :])
        for period, names in new.items()
    }
    found: Figures = {}
    for figure, value in figures.items():
        if figure.series in surplus.get((figure.step, figure.at), ()):
            figure = figure._replace(series=OTHER)
        before = found.get(figure, 0.0)
        found[figure] = before + value if figure.metric < SAMPLES else max(before, value)
    return found
