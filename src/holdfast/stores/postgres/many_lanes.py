"""Claims over many lanes. A roster lists the lines that have jobs, so that a claim reads a few lines only.

Lines come into the roster in two ways. Events have the new jobs. All other lines with jobs are found by a walk along the index,
which continues from claim to claim. It takes one step for each line, however long the line is, and pauses for a multiple of the
time that it took. A line whose jobs another process has locked looks empty: it is dropped, and the walk finds it again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import Claimed, Lane
from holdfast.jobs.machine import Clock
from holdfast.resilience.roster import NO_OWNER, Roster, RosterLine
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers

#: Every claim reads all lanes if they are at most this many.
FEW = 64
#: How many events a claim reads, how many steps a piece of the walk has, and how many pieces it walks if it knows no lines.
EVENTS, STEPS, PIECES = 500, 100, 10
#: In how many rounds a claim reads lines, and how many lines it reads if all of them are held.
ROUNDS, MOST_HELD = 8, 1000
#: Without a wake-up, events are read again after this many seconds.
LOOK_EVERY = 0.05
#: After a query that found no holds, none are expected for this many seconds. This only saves queries: the claim's own
#: statement skips lanes that are held.
NO_HOLDS_FOR = 0.05
#: The walk pauses for this many times its own duration, and for at least this many seconds.
PATIENCE, SHORTEST_REST = 20, 0.25
#: The place before the first line.
START = (-1, 0)

_HELD = """SELECT holdfast.held_lanes($1::int[], $2::boolean)
            WHERE EXISTS (SELECT FROM holdfast.hold) OR EXISTS (SELECT FROM holdfast.breaker WHERE holding)"""


class LaneCrowd:
    """Many lanes that are claimed from together, and the roster of their lines."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self.roster = Roster()
        self.lanes: dict[int, Lane] = {}  #: the lanes that exist, by number
        self._asked: Sequence[Lane] = ()
        self._missing: set[Lane] = set()
        self._event: int | None = None  #: the last event that was read
        self._at, self._took = START, 0.0
        self._walked = False  #: the walk has reached the end once
        self._rests_until = self._no_holds_until = self._read_at = 0.0
        self._calls: int | None = None

    async def serve(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> None:
        """Serve *lanes* from now on. A lane that does not exist yet is added when it has a job."""
        if lanes is not self._asked:
            await self._numbers.find(connection, lanes)
            known = {self._numbers.numbers[lane]: lane for lane in lanes if lane in self._numbers.numbers}
            self._asked, self._missing, self.lanes = lanes, set(lanes) - set(known.values()), known
            self._rests_until, self._walked = 0.0, False

    # -- learning -----------------------------------------------------------------------------------------------------
    async def update(self, connection: asyncpg.Connection[Any], calls: int) -> None:
        """Add the lines of new jobs to the roster, and continue the walk unless it pauses.

        *calls* is the number of wake-ups so far. Without one since the last call there are most likely no new jobs, so events
        are read again only after `LOOK_EVERY`.
        """
        now = self._clock.monotonic()
        self.roster.wake(now)
        if calls != self._calls or now >= self._read_at:
            self._calls, self._read_at = calls, now + LOOK_EVERY
            await self._read_events(connection)
        if not self.rests:
            for _ in range(1 if self._walked or len(self.roster) else PIECES):
                if not await self._walk(connection):
                    break

    @property
    def rests(self) -> bool:
        """Return whether the walk pauses because it has reached the end of the index a short time ago."""
        return self._clock.monotonic() < self._rests_until

    async def _read_events(self, connection: asyncpg.Connection[Any]) -> None:
        if self._event is None:  # the walk finds the jobs of earlier events
            self._event = await connection.fetchval("SELECT coalesce(max(seq), 0) FROM holdfast.event")
            return
        rows = await connection.fetch(SQL["arrived"], self._event, EVENTS)
        if rows:
            self._event = max(row["seq"] for row in rows)
            await self._add(connection, [row[1:] for row in rows if row["lane"] is not None])

    async def scan_all(self, connection: asyncpg.Connection[Any]) -> bool:
        """Continue the walk until it finds lines or has read the whole index, and return whether the roster has lines."""
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
        """Continue the walk by one piece, and return False if it has reached the end of the index."""
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
        """Add lines to the roster. Each is given as a lane, a prio and the owner of its next job."""
        if self._missing:
            unknown = {row[0] for row in rows if row[0] not in self.lanes}
            names = await self._numbers.by_number(connection, unknown) if unknown else {}
            created = {number: names[number] for number in unknown if names.get(number) in self._missing}
            self.lanes |= created
            self._missing.difference_update(created.values())
        for lane, prio, owner in rows:
            if lane in self.lanes:
                self.roster.add(RosterLine(lane, prio, owner or NO_OWNER))

    # -- choosing -----------------------------------------------------------------------------------------------------
    async def choose(
        self, connection: asyncpg.Connection[Any], levels: Sequence[str], most: int, trial: bool
    ) -> list[RosterLine]:
        """Remove up to *most* lines from the roster that are not held, and return them. Held lines are set aside.

        The list is empty if the roster has no such lines.
        """
        if trial:  # a trial may read lines that were set aside because of a breaker
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
        """Return the held ones of these lanes."""
        if self._clock.monotonic() < self._no_holds_until:
            return ()
        held: list[int] | None = await connection.fetchval(_HELD, list(lanes), trial)
        if held is None:
            self._no_holds_until = self._clock.monotonic() + NO_HOLDS_FOR
        return set(held or ())

    async def give_back(
        self, connection: asyncpg.Connection[Any], lines: Sequence[RosterLine], claimed: Sequence[Claimed]
    ) -> None:
        """Add the lines of *claimed* jobs to the roster again if they have more jobs, each under the owner of its next job."""
        gave = {(one.lane, -one.priority) for one in claimed}
        more = [line for line in lines if (self.lanes[line.lane], line.prio) in gave]
        if more:
            lanes, prios = [line.lane for line in more], [line.prio for line in more]
            await self._add(connection, await connection.fetch(SQL["heads"], lanes, prios))


class LaneCrowds:
    """The crowds of one process: one for each set of many lanes that it claims from together."""

    def __init__(self, numbers: LaneNumbers, clock: Clock) -> None:
        self._numbers, self._clock = numbers, clock
        self._crowds: dict[tuple[object, ...], LaneCrowd] = {}

    async def find(
        self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane], caps: Sequence[Cap]
    ) -> LaneCrowd | None:
        """Return the crowd of these lanes, or None if they are few."""
        if len(lanes) <= FEW:
            return None
        # A worker lists its lanes again every few seconds, so the key is what all of them have in common.
        key = (lanes[0].dependency, lanes[0].shard, *(cap.scope for cap in caps))
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = LaneCrowd(self._numbers, self._clock)
        await crowd.serve(connection, lanes)
        return crowd if len(crowd.lanes) > FEW else None

    def wake(self) -> None:
        """Check the held lines again with the next claim, because a hold has ended."""
        for crowd in self._crowds.values():
            crowd.roster.wake()
