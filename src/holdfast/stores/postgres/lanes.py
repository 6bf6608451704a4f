"""The numbers of lanes. A row of a job has the number of its lane; workers and people use the name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import asyncpg

from holdfast.jobs.job import Lane
from holdfast.stores.postgres.enqueue_plan import LANE_NUMBERS

_ALL = "SELECT id, queue, task, dependency, shard, fair FROM holdfast.lane"


class LaneNumbers:
    """A cache of the lanes that are committed. A lane never changes once it exists."""

    def __init__(self) -> None:
        self.numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}

    async def number(self, connection: asyncpg.Connection[Any], lane: Lane) -> int:
        """Return the number of *lane*, and create the lane if it does not exist.

        Inside a transaction the lane is not put into the cache, because it may be rolled back.
        """
        if lane in self.numbers:
            return self.numbers[lane]
        number = int(await connection.fetchval("SELECT holdfast.lane_number($1, $2, $3, $4, $5)", *lane))
        if not connection.is_in_transaction():
            self.numbers[lane], self._lanes[number] = number, lane
        return number

    async def make(self, connection: asyncpg.Connection[Any], lanes: Iterable[Lane]) -> dict[Lane, int]:
        """Return the numbers of these lanes. One statement creates all that do not exist."""
        new = list(self.unknown(lanes))
        if not new:
            return self.numbers
        columns = [list(column) for column in zip(*new, strict=True)]
        made = await connection.fetchval(LANE_NUMBERS, *columns)
        found = dict(zip(new, made, strict=True))
        if connection.is_in_transaction():
            return self.numbers | found
        self._learn(found)
        return self.numbers

    def unknown(self, lanes: Iterable[Lane]) -> set[Lane]:
        """Return those of *lanes* that are not in the cache."""
        return {lane for lane in lanes if lane not in self.numbers}

    def known(self, lanes: Iterable[Lane]) -> list[int]:
        """Return the numbers of those *lanes* that are in the cache."""
        return [self.numbers[lane] for lane in lanes if lane in self.numbers]

    async def find(self, connection: asyncpg.Connection[Any], lanes: Iterable[Lane]) -> None:
        """Read those of *lanes* that are not in the cache, because they may exist by now."""
        new = list(self.unknown(lanes))
        if new:
            columns = [list(column) for column in zip(*new, strict=True)]
            rows = await connection.fetch(
                """SELECT l.id, w.place FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])
                          WITH ORDINALITY AS w(queue, task, dependency, shard, fair, place)
                     CROSS JOIN LATERAL (SELECT x.id FROM holdfast.lane x WHERE x.queue = w.queue AND x.task = w.task
                                AND x.dependency = w.dependency AND x.shard = w.shard AND x.fair = w.fair OFFSET 0) l""",
                *columns,
            )
            self._learn({new[row["place"] - 1]: row["id"] for row in rows})

    async def by_number(self, connection: asyncpg.Connection[Any], numbers: Iterable[int]) -> dict[int, Lane]:
        """Return lanes by number, at least those of these *numbers*."""
        new = {number for number in numbers if number not in self._lanes}
        if new:
            rows = await connection.fetch(f"{_ALL} WHERE id = ANY ($1::int[])", list(new))
            self.learn(rows)
        return self._lanes

    async def remember(self, connection: asyncpg.Connection[Any]) -> None:
        self.learn(await connection.fetch(_ALL))

    def learn(self, rows: Iterable[asyncpg.Record]) -> None:
        """Put committed lanes into the cache. A row is (number, queue, task, dependency, shard, fair)."""
        self._learn({Lane(*row[1:]): row[0] for row in rows})

    def _learn(self, numbers: Mapping[Lane, int]) -> None:
        self.numbers.update(numbers)
        self._lanes.update((number, lane) for lane, number in numbers.items())
