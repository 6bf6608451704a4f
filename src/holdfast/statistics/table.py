"""The tables of statistics: one SQL for every store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from holdfast.engine.ports import Transaction
from holdfast.engine.tables.sql import Transacts, fetch, insert, moment, read, write
from holdfast.jobs.internal import PREFIX
from holdfast.statistics.counting import Figures, capped
from holdfast.statistics.metrics import MOST_SERIES, SAMPLES, STEPS, Metric, SeriesKey, Step

_SERIES = {"queue": "text", "task": "text", "dependency": "text", "code": "text"}
_FIGURE = {
    "step": "smallint",
    "at": "timestamptz",
    "series": "bigint",
    "metric": "smallint",
    "bucket": "smallint",
    "value": "float8",
}
_KEY = ("step", "at", "series", "metric", "bucket")
#: What a figure that is there already gets: the sum, or of samples the highest.
_MERGED = f"""value = CASE WHEN excluded.metric >= {SAMPLES} THEN greatest(statistic.value, excluded.value)
                           ELSE statistic.value + excluded.value END"""
_NEWEST = "SELECT coalesce(max(id), 0) AS newest FROM holdfast.statistic_series"
_PRESENT = """SELECT DISTINCT x.at, s.queue, s.task, s.dependency, s.code
  FROM holdfast.statistic x JOIN holdfast.statistic_series s ON s.id = x.series
 WHERE x.step = $1::smallint AND x.at = ANY ($2::timestamptz[])"""
_IDS = """SELECT id, queue, task, dependency, code FROM holdfast.statistic_series WHERE task = ANY ($1::text[])"""
#: Samples of the same kind are added up over series, but for ages and states, of which the highest stands.
_SUMS = f"""SELECT x.at, {{name}} AS name, x.metric, x.bucket,
       CASE WHEN x.metric IN ({Metric.oldest:d}, {Metric.breaker:d}) THEN max(x.value) ELSE sum(x.value) END AS value
  FROM holdfast.statistic x JOIN holdfast.statistic_series s ON s.id = x.series
 WHERE x.step = $1::smallint AND x.at >= $2::timestamptz AND x.at < $3::timestamptz AND x.metric = ANY ($4::int[])
   AND ($5::text IS NULL OR s.queue = $5::text)
   AND CASE WHEN $6::text IS NULL THEN s.task NOT LIKE $9::text ELSE s.task = $6::text END
   AND ($7::text IS NULL OR s.dependency = $7::text) AND ($8::text IS NULL OR s.code = $8::text)
 GROUP BY 1, 2, 3, 4 ORDER BY 1"""
_NAMES = {None: "''"} | {name: f"s.{name}" for name in SeriesKey._fields}
#: An hour's worth at a time, from the oldest on, so that a long absence does not end in one long statement.
_PURGE = """DELETE FROM holdfast.statistic
 WHERE step = $1::smallint AND at < $2::timestamptz
   AND at < (SELECT min(at) FROM holdfast.statistic WHERE step = $1::smallint) + $3::interval
RETURNING step"""
_FORGET = "DELETE FROM holdfast.statistic WHERE step = $1::smallint AND at >= $2::timestamptz AND metric < $3::smallint"


async def add(transaction: Transaction, figures: Figures) -> None:
    """Add *figures* to those that are stored. The caller has read that no other process adds the same ones."""
    if not figures:
        return
    [row] = await fetch(transaction, _NEWEST)
    if row["newest"] + len({figure.series for figure in figures}) > MOST_SERIES:
        figures = capped(figures, await _present(transaction, figures), MOST_SERIES)
    ids = await _ids(transaction, {figure.series for figure in figures})
    rows = [
        (step.minutes, at, ids[series], int(metric), bucket, value)
        for (step, at, series, metric, bucket), value in figures.items()
    ]
    await insert(transaction, "statistic", _FIGURE, sorted(rows), key=_KEY, merged=_MERGED)


async def _present(
    transaction: Transaction, figures: Figures
) -> Mapping[tuple[Step, datetime], set[SeriesKey]]:
    """Return the series that each period of *figures* has already."""
    found: dict[tuple[Step, datetime], set[SeriesKey]] = {}
    for step in STEPS:
        periods = sorted({figure.at for figure in figures if figure.step == step})
        for row in await fetch(transaction, _PRESENT, step.minutes, periods) if periods else ():
            at, *names = row
            found.setdefault((step, moment(at)), set()).add(SeriesKey._make(names))
    return found


async def _ids(transaction: Transaction, wanted: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    """Return the numbers of these series. Those that are new get one, in a fixed order, so that two writers cannot deadlock."""
    ids = await _known(transaction, wanted)
    if new := sorted(set(wanted) - ids.keys()):
        await insert(transaction, "statistic_series", _SERIES, new, key=tuple(_SERIES), merged=None)
        ids = await _known(transaction, wanted)
    return ids


async def _known(transaction: Transaction, wanted: Collection[SeriesKey]) -> dict[SeriesKey, int]:
    rows = await fetch(transaction, _IDS, sorted({series.task for series in wanted}))
    return {SeriesKey._make(names): number for number, *names in rows}


async def sums(
    store: Transacts,
    step: Step,
    since: datetime,
    until: datetime,
    metrics: Collection[Metric],
    where: SeriesKey,
    by: str | None = None,
) -> list[tuple[datetime, str, Metric, int, float]]:
    """Return the figures of a range, added up over series, by time.

    Args:
        store: The store.
        step: The period of the figures.
        since: When the first period began.
        until: No period that began then or later.
        metrics: Those to return.
        where: A field that is not '' must be that of the series. Without a task, the engine's own are left out.
        by: A field of the series: its value is the name of the sum. None: the name is ''.
    """
    rows = await read(
        store,
        _SUMS.format(name=_NAMES[by]),
        step.minutes,
        since,
        until,
        [int(metric) for metric in metrics],
        *(name or None for name in where),
        f"{PREFIX}%",
    )
    return [
        (moment(row["at"]), row["name"], Metric(row["metric"]), row["bucket"], row["value"]) for row in rows
    ]


async def purge(store: Transacts, step: Step, now: datetime) -> int:
    """Delete some of the figures that were kept long enough, and return how many."""
    return len(await write(store, _PURGE, step.minutes, now - step.keep, max(step.span, timedelta(hours=1))))


async def forget(transaction: Transaction, step: Step, since: datetime) -> None:
    """Delete the figures that events tell, of all periods from *since* on."""
    await fetch(transaction, _FORGET, step.minutes, since, SAMPLES)
