"""What this process has done, in numbers. An observer that adds up, a microsecond a job.

Every job costs a look-up and a few additions: label sets are found by the lane they belong to, and text is made of them only when
somebody asks. The number of label sets is bounded, whatever names jobs come with.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.domain.codes import ErrorClass
from holdfast.domain.external import Done, Failed, Outcome, Requeue
from holdfast.domain.job import AllNew, Claimed, Enqueued, Expired, JobBatch, JobRow, Lane, NewJob, Settlement
from holdfast.domain.lanes import Dependency
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Bury, Complete, Failure, RetryAfter, Verdict
from holdfast.engine.observers import End
from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.metrics.names import LAST_ATTEMPT, MOST_QUEUES, MOST_SETS, OTHER

#: Upper bounds of the buckets, in seconds.
QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
PATIENT = (0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)

#: Lanes are remembered by their label set; shards could make any number of them.
_MOST_LANES = 10_000


class Histogram:
    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.sum = bounds, 0.0
        self.buckets = [0] * (len(bounds) + 1)  #: not cumulative; the last one has no bound

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Series:
    """Everything that is counted of one task in one queue."""

    __slots__ = ("attempts", "created", "durations", "failed", "hopeless", "labels", "succeeded", "successes")

    def __init__(self, labels: tuple[str, str]) -> None:
        self.labels = labels
        self.created = 0
        self.attempts = [0] * (LAST_ATTEMPT + 1)  #: by number; the last place is for all from there on
        self.succeeded = [0] * (LAST_ATTEMPT + 1)
        self.failed: Counter[str] = Counter()
        self.hopeless: Counter[str] = Counter()
        self.durations, self.successes = Histogram(QUICK), Histogram(PATIENT)

    def fail(self, failure: Failure) -> None:
        code = failure.code if failure.code in self.failed or len(self.failed) < MOST_SETS else OTHER
        self.failed[code] += 1
        if failure.error_class is ErrorClass.PERMANENT:
            self.hopeless[code] += 1


class Counts:
    """Implements `holdfast.engine.observers.Observer`. Enqueues come from any thread, all else from the worker's loop."""

    def __init__(self, own_queue: Callable[[str], str | None] = lambda task: None) -> None:
        """*own_queue* returns the queue that a task declares: it has labels of its own however many others callers name."""
        self._own_queue, self._strange = own_queue, Counter[str]()
        self.series: dict[tuple[str, str], Series] = {}
        self.retries: Counter[str] = Counter()
        self.manual = self.recovered = 0
        self.latencies: dict[str, Histogram] = {}
        self._by_lane: dict[Lane, Series] = {}
        self._lock = threading.Lock()

    def _find(self, lane: Lane) -> Series:
        found = self._by_lane.get(lane)
        if found is None:
            with self._lock:
                found = self._labelled((lane.task, lane.queue))
                if len(self._by_lane) >= _MOST_LANES:
                    self._by_lane.clear()
                self._by_lane[lane] = found
        return found

    def _labelled(self, labels: tuple[str, str]) -> Series:
        task, queue = labels
        if labels not in self.series and queue != self._own_queue(task):
            if self._strange[task] >= MOST_QUEUES:
                labels = (task, OTHER)
            else:
                self._strange[task] += 1
        if labels not in self.series and len(self.series) >= MOST_SETS:
            labels = (OTHER, OTHER)
        return self.series.setdefault(labels, Series(labels))

    # -- what is told -----------------------------------------------------------------------------------------------
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
            series = self._find(lane)
            with self._lock:
                series.created += number

    def rejected(self, job: NewJob, failure: Failure) -> None:
        series = self._find(job.spec.lane)
        with self._lock:
            series.created += 1
            series.fail(failure)

    def settled(self, ends: Sequence[End], answers: Sequence[SettlementStatus]) -> None:
        applied, lanes = SettlementStatus.APPLIED, self._by_lane
        for (settlement, claimed), answer in zip(ends, answers, strict=True):
            if answer is not applied or claimed is None:
                continue
            series = lanes.get(claimed.lane) or self._find(claimed.lane)
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
        self._ended_badly(series, claimed.attempt, verdict, "automatic")

    def _ended_badly(self, series: Series, attempt: int, verdict: Verdict, kind: str) -> None:
        series.attempts[min(attempt, LAST_ATTEMPT)] += 1
        match verdict:
            case RetryAfter():
                self.retries[kind] += 1
            case Bury(failure):
                series.fail(failure)

    def reclaimed(self, taken: Sequence[tuple[Expired, Reclaim]], done: int) -> None:
        """Where somebody else was first, nobody says with which: the number is right, a label may be a neighbour's."""
        self.recovered += done
        for expired, reclaim in taken[:done]:
            self._ended_badly(self._find(expired.lane), expired.attempt, reclaim.verdict, "reclaimed")

    def timed_out(self, jobs: int) -> None:
        """Nobody says of which tasks."""
        series = self._find(Lane(OTHER, OTHER))
        with self._lock:
            series.failed["TIMEOUT"] += jobs
            series.hopeless["TIMEOUT"] += jobs

    def reported(self, job: JobRow, outcome: Outcome) -> None:
        series, number = self._find(Lane(job.queue, job.task)), min(job.attempt, LAST_ATTEMPT)
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
            histogram = self.latencies.setdefault(label, Histogram(QUICK))
        histogram.add(seconds)
