"""`app.stats`: read the statistics that the store keeps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from holdfast.engine.namespace import Namespace
from holdfast.engine.ports import Store
from holdfast.statistics import folding, table
from holdfast.statistics.metrics import COSTS, COUNTS, HISTOGRAMS, Metric, SeriesKey
from holdfast.statistics.reading import (
    BreakdownRow,
    FigureRow,
    Overview,
    StatisticSeries,
    TimeRange,
    breakdown_of,
    dimension_named,
    metric_named,
    overview_of,
    series_of,
    time_range,
)
from holdfast.values.duration import Duration

_OF_EVENTS = (*COUNTS, *COSTS, *HISTOGRAMS)


class Statistics(Namespace):
    """What happened, in minutes (kept for 48 hours), hours (90 days) and days (two years).

    A range is *since* and *until*: a duration before now, such as "1h", or a moment with a time zone, also as ISO 8601 text. It is widened to whole periods.
    *queue*, *task*, *dependency* and *code* narrow it. The engine's own tasks are left out unless *task* names one. The memory
    store keeps no statistics: with it every verb raises `UsageError`.
    """

    async def overview(
        self,
        *,
        since: Duration | datetime = "1h",
        until: Duration | datetime | None = None,
        queue: str | None = None,
        task: str | None = None,
        dependency: str | None = None,
    ) -> Overview:
        """Return what happened in a range, and the newest samples of it."""
        store, range_ = await self._range(since, until, None)
        where = _key(queue, task, dependency, None)
        rows = await _rows(store, range_, tuple(Metric), where, None)
        return overview_of(rows, range_, await folding.lag(store))

    async def series(
        self,
        metric: str,
        *,
        since: Duration | datetime = "1h",
        until: Duration | datetime | None = None,
        step: str | None = None,
        by: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        dependency: str | None = None,
        code: str | None = None,
    ) -> StatisticSeries:
        """Return one metric over time.

        Args:
            metric: `completed`, `failed`, `waited_p95`, `backlog`, …; see docs/reference/statistics.md. Percentiles are in milliseconds.
            since: Where the range begins.
            until: Where it ends; None: now.
            step: minute, hour or day; None: the shortest that has few periods.
            by: Split into a line for each queue, task, dependency or code: the 20 largest, and one for the rest.
            queue: Only this queue.
            task: Only this task.
            dependency: Only this dependency.
            code: Only this error code.
        """
        chosen, _ = metric_named(metric)
        store, range_ = await self._range(since, until, step)
        where = _key(queue, task, dependency, code)
        dimension = None if by is None else dimension_named(by)
        return series_of(metric, await _rows(store, range_, (chosen,), where, dimension), range_)

    async def breakdown(
        self,
        by: str,
        *,
        since: Duration | datetime = "1h",
        until: Duration | datetime | None = None,
        queue: str | None = None,
        task: str | None = None,
        dependency: str | None = None,
        code: str | None = None,
    ) -> list[BreakdownRow]:
        """Return what happened in a range for each queue, task, dependency or code, the busiest first."""
        dimension = dimension_named(by)
        store, range_ = await self._range(since, until, None)
        where = _key(queue, task, dependency, code)
        return breakdown_of(await _rows(store, range_, _OF_EVENTS, where, dimension))

    async def rebuild(self) -> datetime | None:
        """Count again all events that are kept, and return since when they are; None without events.

        Figures of earlier times stay. Maintenance does the counting; until it is done, the figures are too low.
        """
        return await folding.rebuild((await self._engine()).store)

    async def _range(
        self, since: Duration | datetime, until: Duration | datetime | None, step: str | None
    ) -> tuple[Store, TimeRange]:
        store = (await self._engine()).store
        folding.folds(store)
        return store, time_range(since, until, step, await store.now())


def _key(queue: str | None, task: str | None, dependency: str | None, code: str | None) -> SeriesKey:
    return SeriesKey(queue or "", task or "", dependency or "", code or "")


async def _rows(
    store: Store, range_: TimeRange, metrics: Collection[Metric], where: SeriesKey, by: str | None
) -> list[FigureRow]:
    found = await table.sums(store, range_.step, range_.since, range_.until, metrics, where, by)
    return [FigureRow._make(one) for one in found]
