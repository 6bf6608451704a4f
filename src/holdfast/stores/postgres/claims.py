"""Claiming: the first jobs over all the lines a worker serves, and where the next claim should look.

The cursor is a hint that keeps a claim from walking over the dead rows at the head of a line, which pile up while somebody
holds an old snapshot open. Correctness never depends on it: a lower place may commit later, so every so often, and whenever
nothing was found, a claim starts from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.domain.job import Claimed, JobId, Lane, Lease, Session
from holdfast.engine.ports import Clock
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.plans import SQL
from holdfast.stores.shapes import MOST_PER_EVENT

_START = (-(2**62), "00000000-0000-0000-0000-000000000000")
#: A full look is repeated after this many times its own duration, and not before a second has passed: so long may a
#: priority that nobody used before stay unknown to a worker.
_PATIENCE, _AT_LEAST = 20, 1.0


class Claims:
    """The claims of one process, one after the other."""

    def __init__(self, lanes: LaneNumbers, clock: Clock) -> None:
        self._lanes, self._clock = lanes, clock
        self._cursors = Cursors(clock)
        self._look_at = 0.0

    async def claim(
        self, connection: asyncpg.Connection[Any], session: Session, lanes: Sequence[Lane], limit: int
    ) -> list[Claimed]:
        numbers = await self._lanes.known(connection, lanes)
        if not numbers:
            return []
        await self._look(connection)
        rows = await self._take(connection, session, numbers, limit)
        if not rows and not self._cursors.was_full:
            self._cursors.restart()
            rows = await self._take(connection, session, numbers, limit)
        lane_of = await self._lanes.by_number(connection, numbers)
        return [
            Claimed(
                Lease(JobId(str(row[0])), row[1]), lane_of[row[2]], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
                row[10], row[11], row[12], row[13], row[14], row[15],
            )
            for row in rows
        ]  # fmt: skip

    async def _take(
        self, connection: asyncpg.Connection[Any], session: Session, numbers: list[int], limit: int
    ) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(
            SQL["claim"], session.id, *self._cursors.probes(numbers), min(limit, MOST_PER_EVENT)
        )
        self._cursors.saw(rows)
        return rows

    async def _look(self, connection: asyncpg.Connection[Any]) -> None:
        """Every so often: learn which lines have somebody, because a priority may be new."""
        began = self._clock.monotonic()
        if began >= self._look_at:
            self._cursors.know(await connection.fetch(SQL["lines"]))
            now = self._clock.monotonic()
            self._look_at = now + max(_AT_LEAST, _PATIENCE * (now - began))


class Cursors:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._from: dict[tuple[int, int], tuple[int, Any]] = {}
        self._prios: dict[int, set[int]] = {}
        self._turn = 0
        self._full_at = 0.0
        self._began = 0.0

    def probes(self, lanes: Sequence[int]) -> tuple[list[int], list[int], list[int], list[Any]]:
        """(lanes, prios, ords, ids) to look at: better priorities first, lanes of one priority in turn."""
        self._began = self._clock.monotonic()
        if self._began >= self._full_at:
            self._from.clear()
        self._turn += 1
        turned = [lanes[(place + self._turn) % len(lanes)] for place in range(len(lanes))]
        pairs = [(prio, lane) for lane in turned for prio in self._prios.get(lane, {0})]
        pairs.sort(key=lambda pair: pair[0])
        starts = [self._from.get((lane, prio), _START) for prio, lane in pairs]
        return (
            [lane for _, lane in pairs],
            [prio for prio, _ in pairs],
            [s[0] for s in starts],
            [s[1] for s in starts],
        )

    @property
    def was_full(self) -> bool:
        return not self._from

    def saw(self, rows: Sequence[Any]) -> None:
        """Remember where the claimed jobs stood."""
        now = self._clock.monotonic()
        if self.was_full:
            self._full_at = now + max(_AT_LEAST, _PATIENCE * (now - self._began))
        seen: set[tuple[int, int]] = set()
        for row in rows:  # in order: the first of each line is its lowest place
            line = row["lane"], row["prio"]
            if line not in seen:
                seen.add(line)
                self._from[line] = row["ord"], row["job_id"]

    def restart(self) -> None:
        self._from.clear()

    def know(self, lines: Sequence[Any]) -> None:
        """Learn which (lane, prio) have somebody."""
        for lane, prio in lines:
            self._prios.setdefault(lane, {0}).add(prio)
