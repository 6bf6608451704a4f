"""Follow the event log and fold it into figures.

The bookmark, which says how far the log is folded, moves in the transaction that adds the figures, by compare-and-set. So each event counts
once, however many processes fold and whenever they are killed: of two that have counted the same events, the second adds nothing.

The events are counted before that transaction, because they never change. It is short, and no worker waits for the counting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from holdfast.engine.ports import FoldsEvents, Store, Transaction
from holdfast.engine.tables import bookmarks
from holdfast.engine.tables.sql import fetch, moment, read
from holdfast.errors import UsageError
from holdfast.statistics import table
from holdfast.statistics.counting import Counted, read_counts, spread
from holdfast.statistics.metrics import STEPS

#: The bookmarks: the number of the first event that is not folded, and where a rebuild began.
NEXT, REBUILT_AT, REBUILT_TO = "statistics", "statistics rebuilt at", "statistics rebuilt to"
#: How many rows of events one read counts, so that it takes milliseconds, and how many reads are added by one transaction.
ROWS, READS = 500, 10

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: The oldest event, and the number after the newest.
_RANGE = "SELECT min(seq) AS first, max(seq) AS last FROM holdfast.event"
_AT = "SELECT at FROM holdfast.event WHERE seq = $1::bigint"
_UNFOLDED = (
    "SELECT at, holdfast.clock() AS now FROM holdfast.event WHERE seq >= $1::bigint ORDER BY seq LIMIT 1"
)


def folds(store: Store) -> FoldsEvents:
    """Return the queries of a store that keeps statistics. Raise `UsageError` for the memory store, which keeps none."""
    queries = store.queries
    if not isinstance(queries, FoldsEvents):
        raise UsageError("the memory store keeps no statistics; use sqlite:///FILE or postgresql://…")
    return queries


async def fold(store: Store) -> bool:
    """Fold the next events, a bounded number of them. Return whether there may be more."""
    places = await bookmarks.several(store, (NEXT, REBUILT_AT, REBUILT_TO))
    before = places.get(NEXT)
    counted = await _count(store, before or 0)
    if not counted:
        return False
    horizon = _horizon(places)

    async def add(transaction: Transaction) -> bool:
        to = counted[-1].last + 1
        if not await bookmarks.move_in(transaction, NEXT, before=before, to=to):
            return False  # another process has folded these events
        for part in counted:
            await table.add(transaction, spread(part, horizon))
        return True

    added = await store.transact(add)
    return not added or counted[-1].rows == ROWS


async def _count(store: Store, first: int) -> list[Counted]:
    """Count the events from the number *first* on."""
    queries, counted = folds(store), list[Counted]()
    while len(counted) < READS:
        part = read_counts(await queries.fold(first, ROWS))
        if part.rows:
            counted.append(part)
        if part.rows < ROWS:
            break
        first = part.last + 1
        await asyncio.sleep(0)  # SQLite reads in this thread
    return counted


def _horizon(places: Mapping[str, int]) -> datetime | None:
    """Return until when a rebuild that is going on leaves the figures alone."""
    if places.get(NEXT, 0) >= places.get(REBUILT_TO, 0):
        return None
    return _EPOCH + places[REBUILT_AT] * _MICROSECOND


async def rebuild(store: Store) -> datetime | None:
    """Fold again all events that the log still has. Return since when, or None if the log is empty.

    Figures of earlier periods stay as they are, and so do samples. Until the log is folded, figures of the range are too low.
    """
    folds(store)

    async def begin(transaction: Transaction) -> datetime | None:
        [row] = await fetch(transaction, _RANGE)
        if row["first"] is None:
            return None
        [oldest] = await fetch(transaction, _AT, row["first"])
        at = moment(oldest["at"])
        # First the bookmark: another process that adds figures has then committed them, or adds none.
        await bookmarks.put_in(transaction, NEXT, row["first"])
        await bookmarks.put_in(transaction, REBUILT_AT, (at - _EPOCH) // _MICROSECOND)
        await bookmarks.put_in(transaction, REBUILT_TO, row["last"] + 1)
        for step in STEPS:
            await table.forget(transaction, step, step.ceiling(at))
        return at

    return await store.transact(begin)


async def lag(store: Store) -> timedelta:
    """Return the age of the oldest event that is not folded."""
    rows = await read(store, _UNFOLDED, await bookmarks.get(store, NEXT) or 0)
    return max([timedelta(), *(moment(row["now"]) - moment(row["at"]) for row in rows)])
