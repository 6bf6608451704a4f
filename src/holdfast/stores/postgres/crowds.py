"""Claims over many lanes: which lines have jobs waiting is kept in a roster, so that a claim looks at a few lines only.

The roster learns of lines in two ways. New jobs are told of by events. All other lines with jobs are found by a walk along the
index that goes on from claim to claim and takes one step for each line, however long it is; it rests for many times as long as
it took. A line that is held, or whose jobs another process has just locked, is left out of an answer like an empty one: it is
dropped, and the walk finds it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from holdfast.domain.fairness import Turns
from holdfast.domain.job import Claimed, Lane
from holdfast.domain.roster import NOBODY, Line, Roster
from holdfast.engine.lanestore import Cap
from holdfast.engine.ports import Clock
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.plans import SQL

#: Up to this many lanes are looked at by every claim.
FEW = 64
#: How many events, and how many steps of the walk, a claim looks at; in how many rounds it claims.
EVENTS, STEPS, ROUNDS = 500, 100, 4
#: Events are looked at this often, and the lanes that did not exist.
LOOK_EVERY, FIND_EVERY = 0.01, 1.0
#: The walk rests for this many times as long as it took, and for this long at the least.
PATIENCE, SHORTEST_REST = 20, 0.25
#: Before the first line.
START = (-1, 0)


class Crowd:
    """Lanes that are claimed from together, and the roster of their lines."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self.roster, self._turns = Roster(), Turns()
        self.lanes: dict[int, Lane] = {}  #: those that exist, by number
        self._asked: Sequence[Lane] = ()
        self._missing: set[Lane] = set()
        self._event: int | None = None  #: the last that was looked at
        self._at, self._took = START, 0.0
        self._rests_until = self._look_at = self._find_at = 0.0

    async def serve(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> None:
        """From now on this is about *lanes*. Those that do not exist yet are looked for now and then."""
        now = self._clock.monotonic()
        if lanes is not self._asked:
            self._asked, self._missing, self.lanes = lanes, set(lanes), {}
            self._rests_until = self._find_at = 0.0
        if self._missing and now >= self._find_at:
            self._find_at = now + FIND_EVERY
            await self._numbers.find(connection, self._missing)
            known = {lane for lane in self._missing if lane in self._numbers.numbers}
            self.lanes |= {self._numbers.numbers[lane]: lane for lane in known}
            self._missing -= known

    # -- learning -----------------------------------------------------------------------------------------------------
    async def look(self, connection: asyncpg.Connection[Any]) -> None:
        """Learn of new jobs, unless that was done just now, and go on with the walk unless it rests."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            await self._look_at_events(connection)
        if now >= self._rests_until:
            await self.walk(connection)

    async def _look_at_events(self, connection: asyncpg.Connection[Any]) -> None:
        if self._event is None:  # the walk finds what is there already
            self._event = await connection.fetchval("SELECT coalesce(max(seq), 0) FROM holdfast.event")
            return
        rows = await connection.fetch(SQL["arrived"], self._event, EVENTS)
        if rows:
            self._event = rows[0]["seq"]
            self._add(row[1:] for row in rows[1:])

    async def walk(self, connection: asyncpg.Connection[Any]) -> bool:
        """Go on with the walk; whether there may be more behind."""
        began = self._clock.monotonic()
        rows = await connection.fetch(SQL["waiting"], *self._at, STEPS)
        self._add(rows)
        now = self._clock.monotonic()
        self._took += now - began
        if len(rows) == STEPS:
            self._at = rows[-1]["lane"], rows[-1]["prio"]
            return True
        self._rests_until = now + max(PATIENCE * self._took, SHORTEST_REST)
        self._at, self._took = START, 0.0
        return False

    def _add(self, rows: Iterable[Any]) -> None:
        for lane, prio, owner in rows:
            if lane in self.lanes:
                self.roster.add(Line(lane, prio, owner or NOBODY))

    def wake(self) -> None:
        """Something is not held any more: let the walk find it."""
        self._rests_until = 0.0

    # -- choosing -----------------------------------------------------------------------------------------------------
    def choose(self, weights: Mapping[str, int], most: int) -> list[Line]:
        """Take up to *most* lines out of the roster."""
        self._turns.weights = weights
        return [line for line in self.roster.choose(self._turns.next(), most) if line.lane in self.lanes]

    async def give_back(
        self, connection: asyncpg.Connection[Any], lines: Sequence[Line], claimed: Sequence[Claimed]
    ) -> None:
        """List those again that may have more, each under the owner of its next job."""
        gave = {(one.lane, -one.priority) for one in claimed}
        more = [line for line in lines if (self.lanes[line.lane], line.prio) in gave]
        if more:
            self._add(
                await connection.fetch(
                    SQL["heads"], [line.lane for line in more], [line.prio for line in more]
                )
            )


class Crowds:
    """The crowds of one process: one for each set of lanes that it claims from together, if they are many."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self._crowds: dict[tuple[object, ...], Crowd] = {}

    async def find(
        self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane], caps: Sequence[Cap]
    ) -> Crowd | None:
        """Return the crowd of these lanes; None where they are few."""
        if len(lanes) <= FEW:
            return None
        # A worker lists its lanes anew every few seconds: what they have in common stays.
        key = (lanes[0].dependency, lanes[0].shard, *(cap.scope for cap in caps))
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = Crowd(self._numbers, self._clock)
        await crowd.serve(connection, lanes)
        return crowd if len(crowd.lanes) > FEW else None

    def wake(self) -> None:
        """Something is not held any more."""
        for crowd in self._crowds.values():
            crowd.wake()
