"""What no event tells, sampled once a minute: backlogs, breakers, holds, workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.engine.ports import Store, Transaction
from holdfast.engine.tables import bookmarks
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.engine.tables.holds import holds_in_force
from holdfast.statistics import table
from holdfast.statistics.counting import Figures
from holdfast.statistics.metrics import MINUTE, STEPS, Figure, Metric, SeriesKey

#: The bookmark: the minute that was sampled last.
SAMPLED = "statistics sampled"
#: Counts stop here.
MOST = 1_000_000
_STATES = {"closed": 0, "half_open": 1, "open": 2}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Sample = tuple[SeriesKey, Metric, float]


async def sample(store: Store) -> bool:
    """Add the samples of this minute, unless some process has. Return whether this one did."""
    at = MINUTE.floor(await store.now())
    minute, before = (at - _EPOCH) // MINUTE.span, await bookmarks.get(store, SAMPLED)
    if minute == before:
        return False
    samples = [*await _jobs(store), *await _guards(store), *await _workers(store)]
    figures: Figures = {}
    for series, metric, value in samples:
        for step in STEPS:
            figure = Figure(step, step.floor(at), series, metric)
            figures[figure] = max(value, figures.get(figure, 0.0))

    async def add(transaction: Transaction) -> bool:
        if not await bookmarks.move_in(transaction, SAMPLED, before=before, to=minute):
            return False
        await table.add(transaction, figures)
        return True

    return await store.transact(add)


async def _jobs(store: Store) -> Iterator[Sample]:
    """Return the backlog, the running jobs and the oldest due job of each series. Shards of a dependency are added up."""
    figures: dict[tuple[SeriesKey, Metric], float] = {}
    for lane, found in (await store.queries.stats(MOST)).lines.items():
        series = SeriesKey(lane.queue, lane.task, lane.dependency)
        for metric, value in ((Metric.backlog, found.waiting), (Metric.running, found.active)):
            figures[series, metric] = figures.get((series, metric), 0.0) + value
        age = 0.0 if found.oldest is None else found.oldest.total_seconds()
        figures[series, Metric.oldest] = max(age, figures.get((series, Metric.oldest), 0.0))
    return ((series, metric, value) for (series, metric), value in figures.items())


async def _guards(store: Store) -> list[Sample]:
    """Return the state of each breaker, and how many holds each kind of scope has."""
    breakers = [
        (SeriesKey(dependency=one.dependency.name), Metric.breaker, float(_STATES[one.breaker.state]))
        for one in await dependency_states(store)
    ]
    holds: dict[SeriesKey, float] = {}
    for held in await holds_in_force(store):
        series = SeriesKey(code=str(held.scope))
        holds[series] = holds.get(series, 0.0) + 1
    return breakers + [(series, Metric.holds, value) for series, value in holds.items()]


async def _workers(store: Store) -> list[Sample]:
    """Return how many workers run each version of Holdfast."""
    workers: dict[SeriesKey, float] = {}
    for worker in await store.queries.workers():
        series = SeriesKey(code=worker.version)
        workers[series] = workers.get(series, 0.0) + 1
    return [(series, Metric.workers, value) for series, value in workers.items()]
