"""Claiming: the first jobs over all the lines a worker serves, and where the next claim should look.

The cursor is a hint that keeps a claim from walking over the dead rows at the head of a line, which pile up while somebody
holds an old snapshot open. Correctness never depends on it: a lower place may commit later, so every so often, and whenever
nothing was found, a claim starts from the beginning.

In a fair line a newcomer is placed at its head, as its stager saw it: the cursor of such a line stays behind by more than a
stager needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from holdfast.domain.fairness import UNPLACED, Turns, level_of
from holdfast.domain.job import Claimed, JobId, Lane, Lease, Session
from holdfast.domain.roster import RosterLine
from holdfast.engine.lane_store import Cap
from holdfast.engine.ports import Clock
from holdfast.stores.encoding import MOST_PER_EVENT
from holdfast.stores.postgres import limits
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.many_lanes import LaneCrowds

_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_START, _END = (-(2**62), _FIRST_ID), 2**62
_NOWHERE: Mapping[int, tuple[int, Any]] = {}
#: A full look is repeated after this many times its own duration, and not before a second has passed: so long may a
#: priority that nobody used before stay unknown to a worker.
_PATIENCE, _AT_LEAST = 20, 1.0
#: So long at least was the cursor of a fair line its head, before claims begin there.
_BEHIND = 0.15


class Wanted(NamedTuple):
    """What a claim asks for."""

    session: Session
    lanes: Sequence[Lane]
    limit: int
    caps: Sequence[Cap] = ()
    trial: bool = False
    lines: Sequence[RosterLine] = ()  #: of very many lanes: only from these lines


class Claims:
    """The claims of one process, one after the other."""

    def __init__(self, lanes: LaneNumbers, clock: Clock) -> None:
        self._lanes, self._clock = lanes, clock
        self._cursors = Cursors(clock)
        self.crowds = LaneCrowds(lanes, clock)
        self._look_at: dict[Lane, float] = {}  #: by the first lane of those that are claimed from together

    def share(self, priorities: Mapping[str, int]) -> None:
        self._cursors.turns.weights = dict(priorities)

    def levels(self) -> tuple[str, ...]:
        """Return the levels of priority in the order of the next claim."""
        return self._cursors.turns.next()

    async def claim(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if not wanted.lines:
            await self._look(connection, wanted.lanes)
        if not wanted.caps:
            return await self._claim(connection, wanted)
        try:
            async with connection.transaction():
                return await self._claim_capped(connection, wanted)
        except asyncpg.LockNotAvailableError:
            return []  # somebody else claims under the same caps

    async def _claim_capped(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        room = await limits.room(connection, wanted.caps, min(wanted.limit, MOST_PER_EVENT))
        if not room.most:
            return []
        claimed = await self._claim(connection, wanted._replace(limit=room.most))
        if claimed:
            await limits.occupy(connection, wanted.caps, room, [one.lease for one in claimed])
        return claimed

    async def _claim(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if wanted.lines:
            rows = await self._take_from_lines(connection, wanted)
        else:
            numbers = self._lanes.known(wanted.lanes)
            rows = await self._take(connection, wanted, numbers) or await self._take_anew(connection, wanted)
        lane_of = await self._lanes.by_number(connection, {row["lane"] for row in rows})
        return [claimed(row, lane_of) for row in rows]

    async def _take(
        self, connection: asyncpg.Connection[Any], wanted: Wanted, numbers: list[int]
    ) -> list[asyncpg.Record]:
        if not numbers:
            return []
        fair = self._lanes.known(lane for lane in wanted.lanes if lane.fair)
        rows: list[asyncpg.Record] = await connection.fetch(
            SQL["claim"],
            wanted.session.id,
            *self._cursors.probes(numbers, fair),
            min(wanted.limit, MOST_PER_EVENT),
            wanted.trial,
            min(wanted.limit, MOST_PER_EVENT),
        )
        self._cursors.saw(rows)
        return rows

    async def _take_from_lines(
        self, connection: asyncpg.Connection[Any], wanted: Wanted
    ) -> list[asyncpg.Record]:
        """From each of these lines its share: what is missing then, the next round takes from others."""
        limit, lanes = min(wanted.limit, MOST_PER_EVENT), await self._lanes.by_number(connection, ())
        rows: list[asyncpg.Record] = await connection.fetch(
            SQL["claim"],
            wanted.session.id,
            *self._cursors.probes_of(
                [(line.lane, line.prio) for line in wanted.lines],
                {line.lane for line in wanted.lines if lanes[line.lane].fair},
            ),
            limit,
            wanted.trial,
            -(-limit // len(wanted.lines)),
        )
        self._cursors.saw(rows)
        return rows

    async def _take_anew(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[asyncpg.Record]:
        """After an empty answer: the same from the beginning of the lines, and in lanes that were made meanwhile."""
        lanes = wanted.lanes
        before = self._lanes.known(lanes)
        if len(before) < len(lanes):
            await self._lanes.find(connection, lanes)
        numbers = self._lanes.known(lanes)
        if self._cursors.are_full(numbers) and len(numbers) == len(before):
            return []
        self._cursors.restart(set(numbers))
        return await self._take(connection, wanted, numbers)

    async def has_listener(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> bool:
        """Whether anybody stands in these lanes, placed or not: one statement, unless some of them did not exist when we
        last looked."""
        if not lanes:
            return False
        began = self._clock.monotonic()
        if len(self._lanes.known(lanes)) < len(lanes):
            await self._lanes.find(connection, lanes)
        lines = await connection.fetch(SQL["lines"], self._lanes.known(lanes))
        self._cursors.know(lines)
        now = self._clock.monotonic()
        self._look_at[lanes[0]] = now + max(_AT_LEAST, _PATIENCE * (now - began))
        return bool(lines)

    async def _look(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> None:
        """Every so often: learn which lines have somebody, because a lane or a priority may be new."""
        if lanes and self._clock.monotonic() >= self._look_at.get(lanes[0], 0.0):
            await self.has_listener(connection, lanes)


def claimed(row: asyncpg.Record, lane_of: Mapping[int, Lane]) -> Claimed:
    return Claimed(
        Lease(JobId(str(row[0])), row[1]), lane_of[row[2]], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14], row[15], -row[16],
    )  # fmt: skip


class Cursors:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._from: dict[int, dict[int, tuple[int, Any]]] = {}  #: by lane and priority
        self._next: dict[int, dict[int, tuple[float, int]]] = {}  #: of fair lines: since when, and where
        self.turns = Turns()
        self._levels = self.turns.next()
        self._prios: dict[int, set[int]] = {}
        self._turn = 0
        self._full_at: dict[
            int, float
        ] = {}  #: when the lines of a lane are to be looked at from their beginning
        self._full: list[int] = []  #: those that the last probes looked at so
        self._began = 0.0

    def probes(
        self, lanes: Sequence[int], fair: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[Any], list[int]]:
        """(lanes, prios, ords, ids, ends) to look at: the level whose turn it is, then the others; in each better priorities
        first, lanes of one priority in turn. A line of a *fair* lane ends where those stand who are not placed."""
        self._began = self._clock.monotonic()
        self.restart({lane for lane in lanes if self._began >= self._full_at.get(lane, 0.0)})
        self._full = self._from_the_beginning(lanes)
        self._turn += 1
        turned = [lanes[(place + self._turn) % len(lanes)] for place in range(len(lanes))]
        pairs = [(prio, lane) for lane in turned for prio in self._prios.get(lane, {0})]
        pairs.sort(key=lambda pair: (self._levels.index(level_of(-pair[0])), pair[0]))
        return self._starts([(lane, prio) for prio, lane in pairs], fair)

    def probes_of(
        self, lines: Sequence[tuple[int, int]], fair: Collection[int]
    ) -> tuple[list[int], list[int], list[int], list[Any], list[int]]:
        """The same for these (lane, prio), in this order."""
        self._began = self._clock.monotonic()
        lanes = {lane for lane, _ in lines}
        self.restart({lane for lane in lanes if self._began >= self._full_at.get(lane, 0.0)})
        self._full = self._from_the_beginning(list(lanes))
        return self._starts(lines, fair)

    def _starts(
        self, lines: Sequence[tuple[int, int]], fair: Collection[int]
    ) -> tuple[list[int], list[int], list[int], list[Any], list[int]]:
        starts = [self._from.get(lane, _NOWHERE).get(prio, _START) for lane, prio in lines]
        return (
            [lane for lane, _ in lines],
            [prio for _, prio in lines],
            [s[0] for s in starts],
            [s[1] for s in starts],
            [UNPLACED if lane in fair else _END for lane, _ in lines],
        )

    def are_full(self, lanes: Sequence[int]) -> bool:
        """Whether claims of all of these begin at the beginning."""
        return len(self._from_the_beginning(lanes)) == len(lanes)

    def _from_the_beginning(self, lanes: Sequence[int]) -> list[int]:
        return [lane for lane in lanes if lane not in self._from]

    def saw(self, rows: Sequence[Any]) -> None:
        """Remember where the claimed jobs stood."""
        now = self._clock.monotonic()
        for lane in self._full:
            self._full_at[lane] = now + max(_AT_LEAST, _PATIENCE * (now - self._began))
        if rows:
            self._levels = self.turns.next()
        seen: set[tuple[int, int]] = set()
        for row in rows:  # in order: the first of each line is its lowest place
            line = row["lane"], row["prio"]
            if line not in seen:
                seen.add(line)
                if row["ord"] < UNPLACED:
                    self._follow(line, row["ord"], now)
                else:
                    self._from.setdefault(line[0], {})[line[1]] = row["ord"], row["job_id"]

    def _follow(self, line: tuple[int, int], head: int, now: float) -> None:
        lane, prio = line
        following = self._next.setdefault(lane, {})
        since, place = following.setdefault(prio, (now, head))
        if head < place:
            following[prio] = now, head
        elif now >= since + _BEHIND:
            # Without the id: those who share a place came in any order.
            self._from.setdefault(lane, {})[prio], following[prio] = (place, _FIRST_ID), (now, head)

    def restart(self, lanes: Collection[int]) -> None:
        """At the beginning of the lines of these lanes; others stay where they are."""
        for lane in lanes:
            self._from.pop(lane, None)
            self._next.pop(lane, None)

    def know(self, lines: Sequence[Any]) -> None:
        """Learn which (lane, prio) have somebody."""
        for lane, prio in lines:
            self._prios.setdefault(lane, {0}).add(prio)
