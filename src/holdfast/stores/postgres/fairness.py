"""Fair lines: the owners of a lane are served in turn, because `ord` is a pass of `holdfast.domain.fairness`.

Jobs enter a fair line unplaced, at their moment, in the caller's transaction: nothing that others need is locked there. A
stager places them afterwards, in a transaction of its own: after our own enqueues, before claims, and as a duty. A claim sees
only who is placed. The statement is `holdfast.stage` (migration core/0007).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from holdfast.domain.fairness import LIGHTEST, STRIDE, UNPLACED, stride
from holdfast.domain.job import JobBatch, Lane
from holdfast.engine.ports import Clock
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers

#: How many of a line are placed by one statement: it should take less than the cursors of fair lines stay behind (`claims`).
BATCH = 1000
#: How many lines one statement looks at: it takes a lock for each that has newcomers.
MOST_LINES = 100
#: A claimer places new jobs at this interval, or after `_PATIENCE` times the duration of a look that found none; in between it
#: claims from those who are placed.
_EVERY = 0.05
#: Looking at who entered lately is cheap. A look at all that is unplaced finds as well who entered in a transaction that was
#: open for longer; it is repeated after `_PATIENCE` times its own duration, and not before a second has passed.
_LATELY = 10_000_000
_PATIENCE, _AT_LEAST, _LONG = 20, 1.0, 0.02
#: How many batches one round of the duty places: other duties wait for it.
_ROUNDS = 10


async def weigh(connection: asyncpg.Connection[Any], weights: Mapping[str, float]) -> None:
    for weight in weights.values():
        stride(weight)  # refuses what is out of bounds
    await connection.execute(
        "INSERT INTO holdfast.owner_weight (owner, weight) SELECT * FROM unnest($1::text[], $2::float8[]) ORDER BY 1"
        " ON CONFLICT (owner) DO UPDATE SET weight = excluded.weight",
        list(weights),
        [float(weight) for weight in weights.values()],
    )


class Stager:
    """Places newcomers, for one process. Needs connections that are in no transaction."""

    def __init__(self, lanes: LaneNumbers, clock: Clock) -> None:
        self._lanes, self._clock = lanes, clock
        self._lines: set[tuple[int, int]] = set()  #: (lane, prio) of fair lanes that had newcomers
        self._look_at: dict[
            Lane, float
        ] = {}  #: by the first fair lane of those that are claimed from together
        self._stage_at = self._duty_at = 0.0

    async def after_enqueue(self, connection: asyncpg.Connection[Any], batches: Iterable[JobBatch]) -> None:
        """Place the jobs that were just enqueued; they can be claimed as soon as this returns."""
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
        """Place newcomers of these lines, which a claim is about to look at."""
        await self._stage(connection, lines, lately=False)

    async def before_claim(self, connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> None:
        """Place newcomers of these lanes, unless that was done just now."""
        fair = [lane for lane in lanes if lane.fair]
        if not fair:
            return
        now = self._clock.monotonic()
        if now >= self._look_at.get(fair[0], 0.0):
            await self._place_in(connection, fair)
        elif now >= self._stage_at:
            await self._stage(connection, self._lines, lately=True)

    async def after_nothing(self, connection: asyncpg.Connection[Any], lanes: Collection[Lane]) -> bool:
        """A claim of these lanes found nobody: look for newcomers, however short the last look was ago; whether there were any."""
        fair = [lane for lane in lanes if lane.fair]
        return bool(fair) and await self._place_in(connection, fair) > 0

    async def _place_in(self, connection: asyncpg.Connection[Any], fair: Sequence[Lane]) -> int:
        """Place newcomers of these lanes, whenever they came; how many there were."""
        began = self._clock.monotonic()
        lines = {(lane, prio) for lane, prio in await connection.fetch(SQL["lines"], self._lanes.known(fair))}
        self._know(lines)
        staged = await self._stage(connection, lines, lately=False)
        now = self._clock.monotonic()
        self._look_at[fair[0]] = now + max(_AT_LEAST, _PATIENCE * (now - began))
        return staged

    async def in_maintenance(self, connection: asyncpg.Connection[Any]) -> int:
        """`all`; less often where that takes long: beside a snapshot that is held open a look walks over all who were ever there."""
        began = self._clock.monotonic()
        if began < self._duty_at:
            return 0
        staged = await self.all(connection)
        now = self._clock.monotonic()
        self._duty_at = now + _PATIENCE * (now - began) if now - began > _LONG else now
        return staged

    async def all(self, connection: asyncpg.Connection[Any], rounds: int = _ROUNDS) -> int:
        """Place everybody, in any fair lane; how many there were."""
        rows = await connection.fetch(SQL["fair_lines"], UNPLACED)
        waiting = {(lane, prio) for lane, prio in rows}
        self._know(waiting)
        staged, moved = 0, BATCH
        while moved >= BATCH and rounds > 0:
            moved = await self._stage(connection, waiting, lately=False)
            staged, rounds = staged + moved, rounds - 1
        return staged

    def _know(self, lines: Collection[tuple[int, int]]) -> None:
        """Look at these lines before claims. Where lanes are very many, a claim places those it looks at: see `place`."""
        self._lines = self._lines.union(lines) if len(self._lines) + len(lines) <= MOST_LINES else set()

    async def _stage(
        self, connection: asyncpg.Connection[Any], lines: Collection[tuple[int, int]], *, lately: bool
    ) -> int:
        began = self._clock.monotonic()
        self._stage_at = began + _EVERY  # now, so that claims beside this one do not do the same
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
    await connection.execute(SQL["forget_flows"], stride(LIGHTEST), BATCH)
