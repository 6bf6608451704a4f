"""Lanes by number: jobs keep the small number, people and workers know the name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import asyncpg

from holdfast.domain.job import Lane


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

    def strange(self, lanes: Iterable[Lane]) -> set[Lane]:
        """Those that are not remembered."""
        return {lane for lane in lanes if lane not in self.numbers}

    def known(self, lanes: Iterable[Lane]) -> list[int]:
        """The numbers of those that were there when we last looked."""
        return [self.numbers[lane] for lane in lanes if lane in self.numbers]

    async def by_number(self, connection: asyncpg.Connection[Any], numbers: Iterable[int]) -> dict[int, Lane]:
        """All lanes by number, these *numbers* among them."""
        if any(number not in self._lanes for number in numbers):
            await self.remember(connection)
        return self._lanes

    async def remember(self, connection: asyncpg.Connection[Any]) -> None:
        rows = await connection.fetch("SELECT id, queue, task, dependency, shard, fair FROM holdfast.lane")
        self._lanes = {row["id"]: Lane(*row[1:]) for row in rows}
        self.numbers = {lane: number for number, lane in self._lanes.items()}
