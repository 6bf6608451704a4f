"""Counters and histograms of this process, kept by an observer that takes about a microsecond per job.

A job costs one look-up by its lane and a few additions. Text is produced only for a scrape. The number of
label sets is bounded, whatever task and queue names callers use.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.engine.observers import End
from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.external import Done, Failed, Outcome, Requeue
from holdfast.jobs.job import AllNew, Claimed, Enqueued, Expired, JobBatch, JobRow, Lane, NewJob, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Bury, Complete, Failure, RetryAfter, Verdict
from holdfast.metrics.names import LAST_ATTEMPT, MOST_QUEUES, MOST_SETS, OTHER

#: Upper bounds of the buckets, in seconds.
SHORT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
LONG_BOUNDS = (0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)

#: How many lanes are cached: shards could create any number of them.
_MOST_LANES = 10_000


class Histogram:
    """Counts of durations per bucket, and their sum."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.sum = bounds, 0.0
        self.buckets = [0] * (len(bounds) + 1)  #: not cumulative; the last one has no bound

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Series:
    """All counts of one task in one queue."""

    __slots__ = (
        "attempts",
        "created",
        "durations",
        "failed",
        "labels",
        "permanent",
        "succeeded",
        "successes",
    )

    def __init__(self, labels: tuple[str, str]) -> None:
        self.labels = labels
        self.created = 0
        #: by number of the attempt; the last one counts all higher numbers
        self.attempts = [0] * (LAST_ATTEMPT + 1)
        self.succeeded = [0] * (LAST_ATTEMPT + 1)
        self.failed: Counter[str] = Counter()
        self.permanent: Counter[str] = Counter()
        self.durations, self.successes = Histogram(SHORT_BOUNDS), Histogram(LONG_BOUNDS)

    def fail(self, failure: Failure) -> None:
        """Count a job that failed for good."""
        code = failure.code if failure.code in self.failed or len(self.failed) < MOST_SETS else OTHER
        self.failed[code] += 1
        if failure.error_class is ErrorClass.PERMANENT:
            self.permanent[code] += 1


class Counts:
    """Implements `holdfast.engine.observers.Observer`.

    Enqueues come from any thread, the rest from the worker's loop.
    """

    def __init__(self, own_queue: Callable[[str], str | None] = lambda task: None) -> None:
        """Count from now on.

        *own_queue* returns the queue that a task declares, which always gets its own labels.
        """
        self._own_queue, self._other_queues = own_queue, Counter[str]()
        self.series: dict[tuple[str, str], Series] = {}
        self.retries: Counter[str] = Counter()
        self.manual = self.recovered = 0
        self.latencies: dict[str, Histogram] = {}
        self._by_lane: dict[Lane, Series] = {}
        self._lock = threading.Lock()

    def _series_of(self, lane: Lane) -> Series:
        series = self._by_lane.get(lane)
        if series is None:
            with self._lock:
                series = self._series_for((lane.task, lane.queue))
                if len(self._by_lane) >= _MOST_LANES:
                    self._by_lane.clear()
                self._by_lane[lane] = series
        return series

    def _series_for(self, labels: tuple[str, str]) -> Series:
        task, queue = labels
        if labels not in self.series and queue != self._own_queue(task):
            if self._other_queues[task] >= MOST_QUEUES:
                labels = (task, OTHER)
            else:
                self._other_queues[task] += 1
        if labels not in self.series and len(self.series) >= MOST_SETS:
            labels = (OTHER, OTHER)
        return self.series.setdefault(labels, Series(labels))

    # -- the observer -----------------------------------------------------------------------------------------------
    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        created: Counter[Lane] = Counter()
        if isinstance(answers, AllNew):
            for batch in JobBatch.split(jobs):
                created[batch.spec.lane] += len(batch)
        else:
            created.update(
                job.spec.lane for job, answer in zip(jobs, answers, strict=True) if not answer.duplicate
            )
        for lane, number in created.items():
            series = self._series_of(lane)
            with self._lock:
                series.created += number

    def rejected(self, job: NewJob, failure: Failure) -> None:
        series = self._series_of(job.spec.lane)
        with self._lock:
            series.created += 1
            series.fail(failure)

    def settled(self, ends: Sequence[End], answers: Sequence[SettlementStatus]) -> None:
        applied, lanes = SettlementStatus.APPLIED, self._by_lane
        for (settlement, claimed), answer in zip(ends, answers, strict=True):
            if answer is not applied or claimed is None:
                continue
            series = lanes.get(claimed.lane) or self._series_of(claimed.lane)
            verdict = settlement.verdict
            if type(verdict) is Complete:
                number = claimed.attempt if claimed.attempt < LAST_ATTEMPT else LAST_ATTEMPT
                series.attempts[number] += 1
                series.succeeded[number] += 1
                seconds = settlement.duration.total_seconds()
                series.durations.add(seconds)
                series.successes.add(claimed.waited.total_seconds() + seconds)
            elif isinstance(verdict, (RetryAfter, Bury)):
                self._failed(series, settlement, claimed, verdict)

    def _failed(
        self, series: Series, settlement: Settlement, claimed: Claimed, verdict: RetryAfter | Bury
    ) -> None:
        series.durations.add(settlement.duration.total_seconds())
        self._count_failure(series, claimed.attempt, verdict, "automatic")

    def _count_failure(self, series: Series, attempt: int, verdict: Verdict, kind: str) -> None:
        series.attempts[min(attempt, LAST_ATTEMPT)] += 1
        match verdict:
            case RetryAfter():
                self.retries[kind] += 1
            case Bury(failure):
                series.fail(failure)

    def reclaimed(self, taken: Sequence[tuple[Expired, Reclaim]], done: int) -> None:
        """Count reclaimed jobs.

        If another process reclaimed some first, the number is exact but labels may be wrong.
        """
        self.recovered += done
        for expired, reclaim in taken[:done]:
            self._count_failure(self._series_of(expired.lane), expired.attempt, reclaim.verdict, "reclaimed")

    def timed_out(self, jobs: int) -> None:
        """Count jobs that timed out. Their tasks are not known here."""
        series = self._series_of(Lane(OTHER, OTHER))
        with self._lock:
            series.failed["TIMEOUT"] += jobs
            series.permanent["TIMEOUT"] += jobs

    def reported(self, job: JobRow, outcome: Outcome) -> None:
        series, number = self._series_of(Lane(job.queue, job.task)), min(job.attempt, LAST_ATTEMPT)
        match outcome:
            case Done() if job.finished_at is not None:
                series.attempts[number] += 1
                series.succeeded[number] += 1
                began = job.last_attempt_at or job.queued_at
                series.durations.add((job.finished_at - began).total_seconds())
                series.successes.add((job.finished_at - job.queued_at).total_seconds())
            case Failed(code, detail):
                series.attempts[number] += 1
                series.fail(Failure.of(code, detail))
            case Requeue(retry=True):
                self.retries["automatic"] += 1

    def retried(self, kind: Kind) -> None:
        with self._lock:
            self.manual += 1
            self.retries["redriven" if kind is Kind.redriven else "manual"] += 1

    def called(self, dependency: Dependency, seconds: float) -> None:
        histogram = self.latencies.get(dependency.label)
        if histogram is None:
            label = dependency.label if len(self.latencies) < MOST_SETS else OTHER
            histogram = self.latencies.setdefault(label, Histogram(SHORT_BOUNDS))
        histogram.add(seconds)
