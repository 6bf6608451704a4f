"""Claim the first jobs of all lines that a worker serves, and remember where the next claim begins.

A line is the ready jobs of one lane and one priority. Its cursor is a hint that keeps a claim from walking over the dead rows
at the head of the line, which pile up while an old snapshot is open. Correctness never depends on it: a job with a lower place
may be committed later, so a claim starts from the beginning of its lines at intervals, and after each claim that found nothing.

In a fair line a new job is placed at the head that its stager saw. The cursor of such a line therefore stays behind the head
for longer than a stager takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import Claimed, JobId, Lane, Lease, Session
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.resilience.fairness import UNPLACED, Turns, level_of
from holdfast.resilience.roster import RosterLine
from holdfast.stores.encoding import MOST_PER_EVENT
from holdfast.stores.postgres import limits
from holdfast.stores.postgres.database import Database
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.fairness import Stager
from holdfast.stores.postgres.many_lanes import FEW, ROUNDS, LaneCrowd, LaneCrowds

#: The statements return job_id, epoch, lane and prio, then the fields of `Claimed` after the priority.
_END_OF_CLAIMED = 4 + len(Claimed._fields[3:])
_FIRST_ID = "00000000-0000-0000-0000-000000000000"
_START, _END = (-(2**62), _FIRST_ID), 2**62
_NOWHERE: Mapping[int, tuple[int, Any]] = {}
#: A search for all lines is repeated after this many times its own duration, and at the earliest after this many seconds.
#: For that time a worker may miss a priority that was not in use before.
_PATIENCE, _AT_LEAST = 20, 1.0
#: A place must have been the head of a fair line for this many seconds before claims begin there.
_BEHIND = 0.15


class Wanted(NamedTuple):
    """The arguments of a claim."""

    session: Session
    lanes: Sequence[Lane]
    limit: int
    caps: Sequence[Cap] = ()
    trial: bool = False
    lines: Sequence[RosterLine] = ()  #: claim from these lines only, which were chosen among very many


class Claims:
    """The claims of one process, which it makes one after the other."""

    def __init__(self, database: Database, stager: Stager) -> None:
        self._database, self._stager = database, stager
        self._lanes, self._clock, self._notifier = database.lanes, database.clock, database.notifier
        self._cursors = Cursors(database.clock)
        self.crowds = LaneCrowds(database.lanes, database.clock)
        #: the number of wake-ups up to the last claim, if it found nothing
        self._rings_when_empty: int | None = None
        #: when the lines of lanes that are claimed from together are searched again, by the first of the lanes
        self._search_at: dict[Lane, float] = {}

    def share(self, priorities: Mapping[str, int]) -> None:
        """Set the weight of each level of priority, by which the levels take turns."""
        self._cursors.turns.weights = dict(priorities)

    async def claim(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        """Claim up to `wanted.limit` jobs, and return them. `engine.ports.Store.claim` is the contract."""
        if self._notifier.keys_wait:
            # A transaction of a caller has enqueued jobs with keys, and could not grant the keys itself.
            self._notifier.keys_wait = False
            await connection.fetch(SQL["grant"], None)
        if len(wanted.lanes) > FEW:
            crowd = await self.crowds.find(connection, wanted.lanes, wanted.caps)
            if crowd is not None:
                return await self._claim_from(crowd, connection, wanted)
        rings = self._notifier.rings
        # Without a wake-up since an empty claim there are most likely no jobs, which costs one short query.
        if rings == self._rings_when_empty and not await self.has_jobs(connection, wanted.lanes):
            return []
        await self._stager.before_claim(connection, wanted.lanes)
        claimed = await self._claim_once(connection, wanted)
        if not claimed and await self._stager.after_nothing(connection, wanted.lanes):
            claimed = await self._claim_once(connection, wanted)
        self._rings_when_empty = None if claimed else rings
        return claimed

    async def _claim_from(
        self, crowd: LaneCrowd, connection: asyncpg.Connection[Any], wanted: Wanted
    ) -> list[Claimed]:
        """Claim from a few lines of very many lanes. The lines take turns."""
        await crowd.update(connection, self._notifier.calls)
        found: list[Claimed] = []
        levels = self._cursors.turns.next()
        for _ in range(ROUNDS):
            left = wanted.limit - len(found)
            lines = await crowd.choose(connection, levels, left, wanted.trial)
            if lines:
                fair = {(line.lane, line.prio) for line in lines if crowd.lanes[line.lane].fair}
                await self._stager.place(connection, fair)
                claimed = await self._claim_once(connection, wanted._replace(limit=left, lines=lines))
                await crowd.give_back(connection, lines, claimed)
                found += claimed
            if len(found) >= wanted.limit or (found and crowd.rests and not len(crowd.roster)):
                break
            if not len(crowd.roster) and not await crowd.scan_all(connection):
                break
        return found

    async def _claim_once(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if not any(Kind.processing in kinds for kinds, _ in self._database.hooks):
            return await self._claim_now(connection, wanted)
        move = self._database.move(connection)
        async with connection.transaction():
            claimed = await self._claim_now(connection, wanted)
            for one in claimed:
                move.notice(Kind.processing, one.lease, one.attempt, {"worker": wanted.session.worker})
            await move.call_hooks()
        return claimed

    async def _claim_now(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[Claimed]:
        if not wanted.lines:
            await self._search(connection, wanted.lanes)
        if not wanted.caps:
            return await self._claim(connection, wanted)
        try:
            async with connection.transaction():
                return await self._claim_capped(connection, wanted)
        except asyncpg.LockNotAvailableError:
            return []  # another process claims under the same caps

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
            rows = await self._take(connection, wanted, numbers) or await self._take_again(connection, wanted)
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
        self._cursors.advance(rows)
        return rows

    async def _take_from_lines(
        self, connection: asyncpg.Connection[Any], wanted: Wanted
    ) -> list[asyncpg.Record]:
        """Claim an equal share of the limit from each of `wanted.lines`, and return the rows. The caller's next round fills the rest."""
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
        self._cursors.advance(rows)
        return rows

    async def _take_again(self, connection: asyncpg.Connection[Any], wanted: Wanted) -> list[asyncpg.Record]:
        """Repeat an empty claim from the beginning of the lines and with the lanes that were created meanwhile."""
        lanes = wanted.lanes
        before = self._lanes.known(lanes)
        if len(before) < len(lanes):
            await self._lanes.find(connection, lanes)
        numbers = self._lanes.known(lanes)
        if self._cursors.are_at_start(numbers) and len(numbers) == len(before):
            return []
        self._cursors.restart(set(numbers))
        return await self._take(connection, wanted, numbers)

    async def has_jobs(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> bool:
        """Find the lines of *lanes* that have ready jobs, and return whether there are any.

        Jobs that are not placed yet count too. This is one statement, and another if some of the lanes are not known to exist.
        """
        if not lanes:
            return False
        began = self._clock.monotonic()
        if len(self._lanes.known(lanes)) < len(lanes):
            await self._lanes.find(connection, lanes)
        lines = await connection.fetch(SQL["lines"], self._lanes.known(lanes))
        self._cursors.add(lines)
        now = self._clock.monotonic()
        self._search_at[lanes[0]] = now + max(_AT_LEAST, _PATIENCE * (now - began))
        return bool(lines)

    async def _search(self, connection: asyncpg.Connection[Any], lanes: Sequence[Lane]) -> None:
        """Find the lines of *lanes* at intervals, because a lane or a priority may be new."""
        if lanes and self._clock.monotonic() >= self._search_at.get(lanes[0], 0.0):
            await self.has_jobs(connection, lanes)


def claimed(row: asyncpg.Record, lane_of: Mapping[int, Lane]) -> Claimed:
    """Return the job in a row of `claim`, `claim_job` or `claim_jobs`."""
    return Claimed(Lease(JobId(str(row[0])), row[1]), lane_of[row[2]], -row[3], *row[4:_END_OF_CLAIMED])


class Cursors:
    """Where the claims of a process begin in each line: a hint, see the top of this module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._from: dict[int, dict[int, tuple[int, Any]]] = {}  #: by lane and priority
        self._next: dict[
            int, dict[int, tuple[float, int]]
        ] = {}  #: of fair lines: the next cursor, and since when
        self.turns = Turns()
        self._levels = self.turns.next()
        self._prios: dict[int, set[int]] = {}
        self._turn = 0
        self._full_at: dict[int, float] = {}  #: when a lane is next read from the beginning of its lines
        self._full: list[int] = []  #: the lanes that the last probes read from the beginning
        self._began = 0.0

    def probes(
        self, lanes: Sequence[int], fair: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[Any], list[int]]:
        """Return the lines of *lanes* as columns for `claim`: lanes, prios, and the ords, ids and ends between which it reads.

        The level of priority whose turn it is comes first. In a level better priorities come first, and lanes of the same
        priority take turns. A line of a *fair* lane ends before the jobs that are not placed.
        """
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
        """Return these *lines*, each a lane and a prio, as columns for `claim`, in their order. See `probes`."""
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

    def are_at_start(self, lanes: Sequence[int]) -> bool:
        """Return whether a claim reads all of these lanes from the beginning."""
        return len(self._from_the_beginning(lanes)) == len(lanes)

    def _from_the_beginning(self, lanes: Sequence[int]) -> list[int]:
        return [lane for lane in lanes if lane not in self._from]

    def advance(self, rows: Sequence[Any]) -> None:
        """Move the cursors to the places of the claimed jobs: *rows* of `claim`, in order."""
        now = self._clock.monotonic()
        for lane in self._full:
            self._full_at[lane] = now + max(_AT_LEAST, _PATIENCE * (now - self._began))
        if rows:
            self._levels = self.turns.next()
        seen: set[tuple[int, int]] = set()
        for row in rows:  # the first row of each line has its lowest place
            line = row["lane"], row["prio"]
            if line not in seen:
                seen.add(line)
                if row["ord"] < UNPLACED:
                    self._follow(line, row["ord"], now)
                else:
                    self._from.setdefault(line[0], {})[line[1]] = row["ord"], row["job_id"]

    def _follow(self, line: tuple[int, int], head: int, now: float) -> None:
        """Move the cursor of a fair line to a place that was its head for `_BEHIND` seconds."""
        lane, prio = line
        following = self._next.setdefault(lane, {})
        since, place = following.setdefault(prio, (now, head))
        if head < place:
            following[prio] = now, head
        elif now >= since + _BEHIND:
            # Without the id, because jobs of one place are committed in any order.
            self._from.setdefault(lane, {})[prio], following[prio] = (place, _FIRST_ID), (now, head)

    def restart(self, lanes: Collection[int]) -> None:
        """Let the next claim read these lanes from the beginning of their lines. Other lanes keep their cursors."""
        for lane in lanes:
            self._from.pop(lane, None)
            self._next.pop(lane, None)

    def add(self, lines: Sequence[Any]) -> None:
        """Let claims read these *lines* from now on, each a lane and a prio."""
        for lane, prio in lines:
            self._prios.setdefault(lane, {0}).add(prio)
