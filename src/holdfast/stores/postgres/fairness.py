"""Fair lines: the owners of a lane are served in turn, because `ord` is a pass of `holdfast.resilience.fairness`.

A job enters a fair line unplaced, with the time as its `ord`, in the caller's transaction: that locks nothing that others need.
A `Stager` places it afterwards, in a transaction of its own: after the store's own enqueues, before claims, and in maintenance.
A claim sees only jobs that are placed. The statement is `holdfast.stage` (migration core/0007).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from holdfast.jobs.job import JobBatch, Lane
from holdfast.jobs.machine import Clock
from holdfast.resilience.fairness import LIGHTEST, STRIDE, UNPLACED, stride
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers

#: How many jobs of a line one statement places. It must take less time than the cursors of fair lines stay behind (`claims`).
BATCH = 1000
#: How many lines one statement reads. It takes a lock for each that has new jobs.
MOST_LINES = 100
#: Before claims, new jobs are placed at this interval in seconds, or after `_PATIENCE` times the duration of a search that found
#: none. Claims in between take jobs that are placed.
_EVERY = 0.05
#: A search among the jobs of the last ten seconds (in microseconds) is cheap. A search among all unplaced jobs also finds those
#: of a transaction that was open for longer. It is repeated after `_PATIENCE` times its own duration, at the earliest after
#: `_AT_LEAST` seconds.
_LATELY = 10_000_000
_PATIENCE, _AT_LEAST, _LONG = 20, 1.0, 0.02
#: How many batches one run of maintenance places. Other maintenance tasks wait for it.
_ROUNDS = 10


async def weigh(connection: asyncpg.Connection[Any], weights: Mapping[str, float]) -> None:
    """Store the weights of owners. Raises `UsageError` for a weight that is out of bounds."""
    for weight in weights.values():
        stride(weight)
    await connection.execute(
        "INSERT INTO holdfast.owner_weight (owner, weight) SELECT * FROM unnest($1::text[], $2::float8[]) ORDER BY 1"
        " ON CONFLICT (owner) DO UPDATE SET weight = excluded.weight",
        list(weights),
        [float(weight) for weight in weights.values()],
    )


class Stager:
    """Places the new jobs of fair lines, for one process. The connections that it is given must be in no transaction."""

    def __init__(self, lanes: LaneNumbers, clock: Clock) -> None:
        self._lanes, self._clock = lanes, clock
        self._lines: set[tuple[int, int]] = set()  #: (lane, prio) of fair lanes that had new jobs
        #: when the lines of lanes that are claimed from together are searched again, by the first of the fair lanes
        self._search_at: dict[Lane, float] = {}
        self._stage_at = self._maintain_at = 0.0

    async def after_enqueue(self, connection: asyncpg.Connection[Any], batches: Iterable[JobBatch]) -> None:
        """Place the jobs that were just enqueued. When this returns, claims find them."""
        fair = [batch for batch in batches if batch.spec.lane.fair]
        numbers = await self._lanes.make(connection, (batch.spec.lane for batch in fair))
        lines = {(numbers[batch.spec.lane], -batch.spec.priority) for batch in fair}
        self._know(lines)
        jobs = sum(map(len, fair))
        placed, moved = 0, BATCH
        while placed < jobs and moved >= BATCH:
            moved = await self._stage(connection, lines, lately=jobs <= _ROUNDS * BATCH)
            placed += moved

    async def place(self, connection: asyncpg.Connection[Any], lines: Collection[tuple[int, int]]) -> None:
        """Place the new jobs of these lines, which a claim is about to read."""
        await self._stage(connection, lines, lately=False)

    async def before_claim(self, connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> None:
        """Place the new jobs of these lanes, unless that was done within the last interval."""
        fair = [lane for lane in lanes if lane.fair]
        if not fair:
            return
        now = self._clock.monotonic()
        if now >= self._search_at.get(fair[0], 0.0):
            await self._place_in(connection, fair)
        elif now >= self._stage_at:
            await self._stage(connection, self._lines, lately=True)

    async def after_nothing(self, connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> bool:
        """Place the new jobs of these lanes after a claim found none, without regard to intervals. Return whether there were any."""
        fair = [lane for lane in lanes if lane.fair]
        return bool(fair) and await self._place_in(connection, fair) > 0

    async def _place_in(self, connection: asyncpg.Connection[Any], fair: Sequence[Lane]) -> int:
        """Place all new jobs of these lanes, and return how many there were."""
        began = self._clock.monotonic()
        lines = {(lane, prio) for lane, prio in await connection.fetch(SQL["lines"], self._lanes.known(fair))}
        self._know(lines)
        staged = await self._stage(connection, lines, lately=False)
        now = self._clock.monotonic()
        self._search_at[fair[0]] = now + max(_AT_LEAST, _PATIENCE * (now - began))
        return staged

    async def in_maintenance(self, connection: asyncpg.Connection[Any]) -> int:
        """Do the same as `all`, less often where that takes long: beside an open snapshot a search walks over all dead rows."""
        began = self._clock.monotonic()
        if began < self._maintain_at:
            return 0
        staged = await self.all(connection)
        now = self._clock.monotonic()
        self._maintain_at = now + _PATIENCE * (now - began) if now - began > _LONG else now
        return staged

    async def all(self, connection: asyncpg.Connection[Any], rounds: int = _ROUNDS) -> int:
        """Place the new jobs of all fair lanes in at most *rounds* batches, and return how many there were."""
        rows = await connection.fetch(SQL["fair_lines"], UNPLACED)
        waiting = {(lane, prio) for lane, prio in rows}
        self._know(waiting)
        staged, moved = 0, BATCH
        while moved >= BATCH and rounds > 0:
            moved = await self._stage(connection, waiting, lately=False)
            staged, rounds = staged + moved, rounds - 1
        return staged

    def _know(self, lines: Collection[tuple[int, int]]) -> None:
        """Let `before_claim` read these lines. If there are too many, it reads none: `place` reads those of each claim."""
        self._lines = self._lines.union(lines) if len(self._lines) + len(lines) <= MOST_LINES else set()

    async def _stage(
        self, connection: asyncpg.Connection[Any], lines: Collection[tuple[int, int]], *, lately: bool
    ) -> int:
        """Place new jobs of these lines, of each at most `BATCH`, and return how many. *lately* skips old jobs, see `_LATELY`."""
        began = self._clock.monotonic()
        self._stage_at = (
            began + _EVERY
        )  # before the first await, so that concurrent claims do not do the same
        if not lines:
            return 0
        ordered, staged = sorted(lines), 0
        for first in range(0, len(ordered), MOST_LINES):
            some = ordered[first : first + MOST_LINES]
            staged += await connection.fetchval(
                SQL["stage"],
                [lane for lane, _ in some],
                [prio for _, prio in some],
                _LATELY if lately else None,
                BATCH,
                UNPLACED,
                STRIDE,
            )
        if not staged:
            now = self._clock.monotonic()
            self._stage_at = now + max(_EVERY, _PATIENCE * (now - began))
        return staged


async def forget_flows(connection: asyncpg.Connection[Any]) -> None:
    """Delete the passes of owners that are so old that the next pass will not be counted from them."""
    await connection.execute(SQL["forget_flows"], stride(LIGHTEST), BATCH)
