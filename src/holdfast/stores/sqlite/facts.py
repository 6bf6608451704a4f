"""What statistics need of an event row, counted as the row is made, so that folding it reads neither its moves nor their jobs.

The column `facts` of an event is a JSON array of groups, one for each lane, attempt and error code of its moves:

    [lane, moves, attempt, error code, cost, waits, durations, totals]

The last three are histograms, {bucket: jobs}: how long the jobs were due when they were claimed, how long their attempts took, and how
long it took from their enqueue to their completion. A cost of 1 for each move is not stored, and neither are nulls at the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.jobs.job import ORDINARY_COST
from holdfast.jobs.moves import Kind
from holdfast.stores.encoding import to_json
from holdfast.values.histogram import BOUNDS

#: Events of jobs that statistics do not count.
UNCOUNTED = frozenset({Kind.expired, Kind.stale_write, Kind.discarded})

#: (uid, epoch, attempt, meta)
MoveRow = tuple[str, int, int, "dict[str, Any] | None"]


class _Group:
    """The moves of one lane, attempt and error code."""

    __slots__ = ("cost", "histograms", "moves")

    def __init__(self) -> None:
        self.moves, self.cost = 0, 0.0
        self.histograms: tuple[dict[int, int], ...] = ({}, {}, {})


def claim_facts(claimed: Iterable[tuple[int, int, int]]) -> str:
    """Return the facts of claims: the lane, the attempt, and for how many milliseconds the job was due."""
    groups: dict[tuple[Any, ...], _Group] = {}
    for lane, attempt, due in claimed:
        group = _group(groups, (lane, attempt))
        _count(group.histograms[0], due)
    return _json(groups)


def end_facts(moves: Sequence[MoveRow], lanes: Sequence[int], totals: Sequence[int] = ()) -> str:
    """Return the facts of moves, by their lanes and metas. *totals* has the milliseconds from enqueue to completion of each."""
    groups: dict[tuple[Any, ...], _Group] = {}
    for place, (_, _, attempt, meta) in enumerate(moves):
        meta = meta or {}
        group = _group(groups, (lanes[place], attempt, meta.get("error_code")))
        group.cost += meta.get("cost", ORDINARY_COST)
        if "duration_ms" in meta:
            _count(group.histograms[1], meta["duration_ms"])
        if totals:
            _count(group.histograms[2], totals[place])
    return _json(groups)


def _group(groups: dict[tuple[Any, ...], _Group], key: tuple[Any, ...]) -> _Group:
    group = groups.get(key)
    if group is None:
        group = groups[key] = _Group()
    group.moves += 1
    return group


def _count(histogram: dict[int, int], milliseconds: int) -> None:
    bucket = bisect_right(BOUNDS, milliseconds)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def _json(groups: dict[tuple[Any, ...], _Group]) -> str:
    return to_json([_row(key, group) for key, group in groups.items()])


def _row(key: tuple[Any, ...], group: _Group) -> list[Any]:
    lane, attempt, *code = key
    ordinary = not code or group.cost == ORDINARY_COST * group.moves
    cost = None if ordinary else group.cost
    row = [lane, group.moves, attempt, *(code or [None]), cost, *(one or None for one in group.histograms)]
    while row[-1] is None:
        row.pop()
    return row
