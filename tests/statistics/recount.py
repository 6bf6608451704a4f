"""Count the events of a store one by one, and read what its statistics say: the two must be equal."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from holdfast.engine.ports import Store
from holdfast.engine.tables.sql import moment, read
from holdfast.jobs.job import Event
from holdfast.statistics.counting import LAST_ATTEMPT
from holdfast.statistics.metrics import SAMPLES, STEPS, Metric, Step
from holdfast.values.histogram import bucket_of

#: (period in minutes, its begin, queue, task, dependency, code, metric, bucket)
Key = tuple[Any, ...]

_COUNTED = {
    "queued": Metric.enqueued,
    "processing": Metric.started,
    "complete": Metric.completed,
    "retry": Metric.retried,
    "manual_retry": Metric.retried_manually,
    "redriven": Metric.retried_manually,
    "failed": Metric.failed,
    "rejected": Metric.failed,
    "cancelled": Metric.cancelled,
    "timed_out": Metric.timed_out,
    "reclaimed": Metric.reclaimed,
    "released": Metric.released,
    "snoozed": Metric.released,
    "late_result": Metric.late,
}
_COSTED = {"complete", "retry", "failed", "reclaimed", "released", "snoozed", "late_result"}
#: The histograms of times that events do not show: only how many were counted is compared.
_TIMED = {Metric.waited: "processing", Metric.took: "complete"}
_STORED = """SELECT x.step, x.at, s.queue, s.task, s.dependency, s.code, x.metric, x.bucket, x.value
  FROM holdfast.statistic x JOIN holdfast.statistic_series s ON s.id = x.series"""


async def all_events(store: Store) -> list[Event]:
    events, after = list[Event](), 0
    while page := await store.queries.events(after=after, limit=5000):
        events += page
        after = page[-1].id
    return events


async def recount(store: Store, steps: tuple[Step, ...] = STEPS) -> Counter[Key]:
    """Return the figures that the events tell. The queue and the task of a job are those of its row."""
    jobs: dict[str, tuple[str, str]] = {}
    figures: Counter[Key] = Counter()
    for event in await all_events(store):
        if event.kind not in _COUNTED:
            continue
        if event.job_id not in jobs:
            row = await store.queries.job(event.job_id)
            assert row is not None
            jobs[event.job_id] = row.queue, row.task
        for step in steps:
            _add(figures, step, event, jobs[event.job_id])
    return figures


def _add(figures: Counter[Key], step: Step, event: Event, lane: tuple[str, str]) -> None:
    period = step.minutes, step.floor(event.at.astimezone(UTC)), *lane
    metric, meta = _COUNTED[event.kind], event.meta
    figures[*period, meta.get("error_code", ""), metric, 0] += 1
    if event.kind == "complete":
        figures[*period, "", Metric.succeeded_at, min(event.attempt, LAST_ATTEMPT)] += 1
        figures[*period, "", Metric.took, None] += 1
    if event.kind == "processing":
        figures[*period, "", Metric.waited, None] += 1
    if "duration_ms" in meta:
        figures[*period, "", Metric.ran, meta["duration_ms"]] += 1
    if event.kind in _COSTED:
        cost = Metric.cost_first if event.attempt <= 1 else Metric.cost_retries
        figures[*period, "", cost, 0] += meta.get("cost", 1.0)


async def stored(store: Store) -> Counter[Key]:
    """Return the stored figures in the form of `recount`: without dependencies and samples, and without buckets of times."""
    figures: Counter[Key] = Counter()
    for row in await read(store, _STORED):
        step, at, queue, task, _, code, metric, bucket, value = row
        if metric >= SAMPLES:
            continue
        begins: datetime = moment(at)
        if metric in (Metric.cost_first, Metric.cost_retries):
            code = ""
        figures[step, begins, queue, task, code, Metric(metric), None if metric in _TIMED else bucket] += (
            value
        )
    return figures


def in_buckets(figures: Counter[Key]) -> Counter[Key]:
    """Return recounted figures with the running times by their buckets, as they are stored."""
    found: Counter[Key] = Counter()
    for (*key, metric, place), value in figures.items():
        found[*key, metric, bucket_of(place) if metric is Metric.ran else place] += value
    return +found


async def check(store: Store) -> None:
    """Fail unless the stored figures are those that the events tell."""
    told, found = in_buckets(await recount(store)), +await stored(store)
    assert {key: round(value, 6) for key, value in found.items()} == {
        key: round(value, 6) for key, value in told.items()
    }
    assert found
