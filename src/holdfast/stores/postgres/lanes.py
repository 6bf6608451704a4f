"""Lanes by number: jobs keep the small number, people and workers know the name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import asyncpg

from holdfast.domain.job import Lane
from holdfast.stores.postgres.enqueue_plan import LANE_NUMBERS

_ALL = "SELECT id, queue, task, dependency, shard, fair FROM holdfast.lane"


class LaneNumbers:
    """Remembers: a lane never changes once it exists."""

    def __init__(self) -> None:
        self.numbers: dict[Lane, int] = {}  #: of those that are committed
        self._lanes: dict[int, Lane] = {}

    async def number(self, connection: asyncpg.Connection[Any], lane: Lane) -> int:
        """The number of *lane*, made if need be. Not remembered before it is committed: it may be undone."""
        if lane in self.numbers:
            return self.numbers[lane]
        number = int(await connection.fetchval("SELECT holdfast.lane_number($1, $2, $3, $4, $5)", *lane))
        if not connection.is_in_transaction():
            self.numbers[lane], self._lanes[number] = number, lane
        return number

    async def make(self, connection: asyncpg.Connection[Any], lanes: Iterable[Lane]) -> dict[Lane, int]:
        """Return the numbers of these lanes, made if need be: one statement, however many are new."""
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
        """Those that are not remembered."""
        return {lane for lane in lanes if lane not in self.numbers}

    def known(self, lanes: Iterable[Lane]) -> list[int]:
        """The numbers of those that were there when we last looked."""
        return [self.numbers[lane] for lane in lanes if lane in self.numbers]

    async def find(self, connection: asyncpg.Connection[Any], lanes: Iterable[Lane]) -> None:
        """Look for those of *lanes* that are not remembered: they may exist by now."""
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
        """Lanes by number, these *numbers* among them."""
        new = {number for number in numbers if number not in self._lanes}
        if new:
            rows = await connection.fetch(f"{_ALL} WHERE id = ANY ($1::int[])", list(new))
            self.learn(rows)
        return self._lanes

    async def remember(self, connection: asyncpg.Connection[Any]) -> None:
        self.learn(await connection.fetch(_ALL))

    def learn(self, rows: Iterable[asyncpg.Record]) -> None:
        """Remember these lanes, which are committed: (number, queue, task, dependency, shard, fair)."""
        self._learn({Lane(*row[1:]): row[0] for row in rows})

    def _learn(self, numbers: Mapping[Lane, int]) -> None:
        self.numbers.update(numbers)
        self._lanes.update((number, lane) for lane, number in numbers.items())
