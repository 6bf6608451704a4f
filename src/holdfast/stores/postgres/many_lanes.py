"""Claims over many lanes: which lines have jobs waiting is kept in a roster, so that a claim looks at a few lines only.

The roster learns of lines in two ways. Events tell of new jobs. All other lines with jobs are found by a walk along the
index that goes on from claim to claim and takes one step for each line, however long it is; it rests for many times as long as
it took. A line whose jobs another process has just locked looks empty: it is dropped, and the walk finds it again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg

from holdfast.domain.job import Claimed, Lane
from holdfast.domain.roster import NOBODY, Roster, RosterLine
from holdfast.engine.lane_store import Cap
from holdfast.engine.ports import Clock
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers

#: Up to this many lanes are looked at by every claim.
FEW = 64
#: How many events a claim looks at, and how many steps of the walk: in pieces, several where it has found nothing else.
EVENTS, STEPS, PIECES = 500, 100, 10
#: In how many rounds it claims, and how many lines it looks at while all of them are held.
ROUNDS, MOST_HELD = 8, 1000
#: Events are looked at this often without a wake-up.
LOOK_EVERY = 0.05
#: That nothing is held at all is believed for this long. It only saves looking: the claim's own statement passes by what is held.
BELIEF = 0.05
#: The walk rests for this many times as long as it took, and for this long at the least.
PATIENCE, SHORTEST_REST = 20, 0.25
#: Before the first line.
START = (-1, 0)

_HELD = """SELECT holdfast.held_lanes($1::int[], $2::boolean)
            WHERE EXISTS (SELECT FROM holdfast.hold) OR EXISTS (SELECT FROM holdfast.breaker WHERE holding)"""


class LaneCrowd:
    """Lanes that are claimed from together, and the roster of their lines."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self.roster = Roster()
        self.lanes: dict[int, Lane] = {}  #: those that exist, by number
        self._asked: Sequence[Lane] = ()
        self._missing: set[Lane] = set()
        self._event: int | None = None  #: the last that was looked at
        self._at, self._took = START, 0.0
        self._walked = False  #: the walk has come round once
        self._rests_until = self._believed_until = self._look_at = 0.0
        self._calls: int | None = None

    async def serve(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> None:
        """From now on this is about *lanes*. One that does not exist yet is known when a job is seen in it."""
        if lanes is not self._asked:
            await self._numbers.find(connection, lanes)
            known = {self._numbers.numbers[lane]: lane for lane in lanes if lane in self._numbers.numbers}
            self._asked, self._missing, self.lanes = lanes, set(lanes) - set(known.values()), known
            self._rests_until, self._walked = 0.0, False

    # -- learning -----------------------------------------------------------------------------------------------------
    async def look(self, connection: asyncpg.Connection[Any], calls: int) -> None:
        """Learn of new jobs, and go on with the walk unless it rests. *calls* counts wake-ups: without one since the last look
        there are most likely no new jobs, and the events are not looked at again at once."""
        now = self._clock.monotonic()
        self.roster.wake(now)
        if calls != self._calls or now >= self._look_at:
            self._calls, self._look_at = calls, now + LOOK_EVERY
            await self._look_at_events(connection)
        if not self.rests:
            for _ in range(1 if self._walked or len(self.roster) else PIECES):
                if not await self._walk(connection):
                    break

    @property
    def rests(self) -> bool:
        """Whether the walk has come round lately."""
        return self._clock.monotonic() < self._rests_until

    async def _look_at_events(self, connection: asyncpg.Connection[Any]) -> None:
        if self._event is None:  # the walk finds what is there already
            self._event = await connection.fetchval("SELECT coalesce(max(seq), 0) FROM holdfast.event")
            return
        rows = await connection.fetch(SQL["arrived"], self._event, EVENTS)
        if rows:
            self._event = max(row["seq"] for row in rows)
            await self._add(connection, [row[1:] for row in rows if row["lane"] is not None])

    async def scan_all(self, connection: asyncpg.Connection[Any]) -> bool:
        """Go on with the walk until it finds lines, or has come round; whether it has found any."""
        began, turned = self._at, self._at == START
        for _ in range(PIECES):
            more = await self._walk(connection)
            if len(self.roster):
                return True
            if turned and (not more or self._at >= began > START):
                return False
            turned = turned or not more
        return False

    async def _walk(self, connection: asyncpg.Connection[Any]) -> bool:
        """Go on with the walk by one piece; whether there may be more behind."""
        began = self._clock.monotonic()
        rows = await connection.fetch(SQL["waiting"], *self._at, STEPS)
        await self._add(connection, rows)
        now = self._clock.monotonic()
        self._took += now - began
        if len(rows) == STEPS:
            self._at = rows[-1]["lane"], rows[-1]["prio"]
            return True
        self._rests_until = now + max(PATIENCE * self._took, SHORTEST_REST)
        self._at, self._took, self._walked = START, 0.0, True
        return False

    async def _add(self, connection: asyncpg.Connection[Any], rows: Sequence[Any]) -> None:
        """List the lines of these lanes, priorities and owners."""
        if self._missing:
            strange = {row[0] for row in rows if row[0] not in self.lanes}
            names = await self._numbers.by_number(connection, strange) if strange else {}
            made = {number: names[number] for number in strange if names.get(number) in self._missing}
            self.lanes |= made
            self._missing.difference_update(made.values())
        for lane, prio, owner in rows:
            if lane in self.lanes:
                self.roster.add(RosterLine(lane, prio, owner or NOBODY))

    # -- choosing -----------------------------------------------------------------------------------------------------
    async def choose(
        self, connection: asyncpg.Connection[Any], levels: Sequence[str], most: int, trial: bool
    ) -> list[RosterLine]:
        """Take up to *most* lines that nothing holds out of the roster; held lines are put aside. None: it lists no others."""
        if trial:  # it passes the breaker that they were put aside for
            self.roster.wake()
        for _ in range(0, MOST_HELD, most):
            chosen = [line for line in self.roster.choose(levels, most) if line.lane in self.lanes]
            held = await self._held(connection, {line.lane for line in chosen}, trial) if chosen else set()
            if held:
                self.roster.hold([line for line in chosen if line.lane in held], self._clock.monotonic())
                chosen = [line for line in chosen if line.lane not in held]
            if chosen or not len(self.roster):
                return chosen
        return []

    async def _held(
        self, connection: asyncpg.Connection[Any], lanes: Collection[int], trial: bool
    ) -> Collection[int]:
        """Return those of these lanes that something holds."""
        if self._clock.monotonic() < self._believed_until:
            return ()
        held: list[int] | None = await connection.fetchval(_HELD, list(lanes), trial)
        if held is None:
            self._believed_until = self._clock.monotonic() + BELIEF
        return set(held or ())

    async def give_back(
        self, connection: asyncpg.Connection[Any], lines: Sequence[RosterLine], claimed: Sequence[Claimed]
    ) -> None:
        """List those again that may have more, each under the owner of its next job."""
        gave = {(one.lane, -one.priority) for one in claimed}
        more = [line for line in lines if (self.lanes[line.lane], line.prio) in gave]
        if more:
            lanes, prios = [line.lane for line in more], [line.prio for line in more]
            await self._add(connection, await connection.fetch(SQL["heads"], lanes, prios))


class LaneCrowds:
    """The crowds of one process: one for each set of lanes that it claims from together, if they are many."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self._crowds: dict[tuple[object, ...], LaneCrowd] = {}

    async def find(
        self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane], caps: Sequence[Cap]
    ) -> LaneCrowd | None:
        """Return the crowd of these lanes; None where they are few."""
        if len(lanes) <= FEW:
            return None
        # A worker lists its lanes anew every few seconds: what they have in common stays.
        key = (lanes[0].dependency, lanes[0].shard, *(cap.scope for cap in caps))
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = LaneCrowd(self._numbers, self._clock)
        await crowd.serve(connection, lanes)
        return crowd if len(crowd.lanes) > FEW else None

    def wake(self) -> None:
        """Something is not held any more."""
        for crowd in self._crowds.values():
            crowd.roster.wake()
