"""What is measured, of what, and for how long it is kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

#: The series of all that exceeds `MOST_SERIES`.
_OTHER = "(other)"
#: How many series a minute, an hour or a day has at most. The rest is counted in the series `OTHER`.
MOST_SERIES = 2000
#: From this number on a metric is a sample: of several values of one period the highest stands, and they are not added.
SAMPLES = 100


class Metric(IntEnum):
    """The figures. The numbers are stored, so they never change; people see the names."""

    enqueued = 1
    started = 2
    completed = 3
    retried = 4  #: automatically
    retried_manually = 5  #: redriven dead letters included
    failed = 6  #: for good
    cancelled = 7
    timed_out = 8  #: its deadline passed
    reclaimed = 9  #: from a lost worker, or because the attempt overran, and queued again
    released = 10  #: given back without being counted
    late = 11  #: reported after its job had ended

    succeeded_at = 20  #: completions by the number of the attempt, which is the bucket
    cost_first = 30  #: of first attempts
    cost_retries = 31  #: of all others

    waited = 40  #: histogram: from when a job was due to its claim
    ran = 41  #: histogram: of attempts
    took = 42  #: histogram: from the enqueue to the completion

    backlog = 100  #: jobs that are due and queued
    running = 101
    oldest = 102  #: for how many seconds the next job has been due
    breaker = 103  #: 0 closed, 1 half open, 2 open
    holds = 104  #: pauses and holds in force
    workers = 105  #: by version, which is the code


COUNTS = tuple(metric for metric in Metric if metric <= Metric.late)
COSTS = (Metric.cost_first, Metric.cost_retries)
HISTOGRAMS = (Metric.waited, Metric.ran, Metric.took)
SAMPLED = tuple(metric for metric in Metric if metric >= SAMPLES)


class SeriesKey(NamedTuple):
    """What a figure is about; '' where it has none."""

    queue: str = ""
    task: str = ""
    dependency: str = ""
    code: str = ""


OTHER = SeriesKey(_OTHER, _OTHER, _OTHER, _OTHER)


class Step(NamedTuple):
    """A period that figures are kept for."""

    name: str
    span: timedelta
    keep: timedelta

    @property
    def minutes(self) -> int:
        return self.span // timedelta(minutes=1)

    def floor(self, at: datetime) -> datetime:
        """Return when the period that contains *at* began. Periods are those of UTC."""
        return at - (at - datetime(1970, 1, 1, tzinfo=at.tzinfo)) % self.span

    def ceiling(self, at: datetime) -> datetime:
        """Return when the first period begins that does not begin before *at*."""
        return self.floor(at + self.span - timedelta.resolution)


MINUTE = Step("minute", timedelta(minutes=1), timedelta(hours=48))
HOUR = Step("hour", timedelta(hours=1), timedelta(days=90))
DAY = Step("day", timedelta(days=1), timedelta(days=731))
STEPS = (MINUTE, HOUR, DAY)


class Figure(NamedTuple):
    """The key of one figure."""

    step: Step
    at: datetime
    series: SeriesKey
    metric: Metric
    bucket: int = 0
