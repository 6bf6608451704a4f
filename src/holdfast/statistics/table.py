"""The tables of statistics: one SQL for every store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.engine.ports import Transaction
from holdfast.engine.tables.sql import Transacts, fetch, insert, moment, read, write
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
_FIGURES = """SELECT x.at, s.queue, s.task, s.dependency, s.code, x.metric, x.bucket, x.value
  FROM holdfast.statistic x JOIN holdfast.statistic_series s ON s.id = x.series
 WHERE x.step = $1::smallint AND x.at >= $2::timestamptz AND x.at < $3::timestamptz AND x.metric = ANY ($4::int[])
   AND ($5::text IS NULL OR s.queue = $5::text) AND ($6::text IS NULL OR s.task = $6::text)
   AND ($7::text IS NULL OR s.dependency = $7::text) AND ($8::text IS NULL OR s.code = $8::text)
 ORDER BY x.at"""
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


async def figures(
    store: Transacts,
    step: Step,
    since: datetime,
    until: datetime,
    metrics: Sequence[Metric],
    where: SeriesKey,
) -> list[tuple[datetime, SeriesKey, Metric, int, float]]:
    """Return the figures of a range, by time. A field of *where* that is not '' must be that of the series."""
    rows = await read(
        store,
        _FIGURES,
        step.minutes,
        since,
        until,
        [int(metric) for metric in metrics],
        *(name or None for name in where),
    )
    return [
        (moment(at), SeriesKey._make(names), Metric(metric), bucket, value)
        for at, *names, metric, bucket, value in rows
    ]


async def purge(store: Transacts, step: Step, now: datetime) -> int:
    """Delete some of the figures that were kept long enough, and return how many."""
    return len(await write(store, _PURGE, step.minutes, now - step.keep, max(step.span, timedelta(hours=1))))


async def forget(transaction: Transaction, step: Step, since: datetime) -> None:
    """Delete the figures that events tell, of all periods from *since* on."""
    await fetch(transaction, _FORGET, step.minutes, since, SAMPLES)
