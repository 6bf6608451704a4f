"""Claims over many lanes. A roster lists the lines that have jobs, so that a claim reads a few lines only.

Lines come into the roster in two ways. New jobs are found by their numbers, which are the highest. All other lines with jobs are
found by a walk along the index, which continues from claim to claim. It takes one step for each line, however long the line is,
and pauses for a multiple of the time that it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import Lane
from holdfast.resilience.roster import NO_OWNER, Roster, RosterLine
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.move import Move

#: Every claim reads all lanes if they are at most this many.
FEW = 64
#: How many new jobs a claim reads, how many steps a piece of the walk has, and how many pieces it walks if it knows no lines.
NEW_JOBS, STEPS, PIECES = 1000, 100, 10
#: How many lines a claim reads if all of them are held.
MOST_HELD = 1000
#: The walk pauses for this many times its own duration, and for at least this many microseconds.
PATIENCE, SHORTEST_REST = 20, 250_000
#: The place before the first line.
START = (-1, 0)


class LaneCrowd:
    """Many lanes that are claimed from together, and the roster of their lines."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.lanes: dict[int, Lane] = {}  #: the lanes that exist, by number
        self._asked: Sequence[Lane] = ()
        self._missing: set[Lane] = set()
        self._newest = self._newest_job = 0
        self._at, self._took, self._rests_until = START, 0, 0
        self._walked = False  #: the walk has reached the end once

    def serve(self, move: Move, lanes: Sequence[Lane]) -> None:
        """Serve *lanes* from now on. Lanes that do not exist yet are searched for when any lane was created."""
        if lanes is not self._asked:
            self._asked, self._missing, self.lanes = lanes, set(lanes), {}
            self._newest, self._rests_until, self._walked = -1, 0, False
        newest = move.lanes.newest(move.connection)
        if newest != self._newest:
            self._newest = newest
            found = move.lanes.existing(move.lane_of, self._missing)
            self.lanes |= found
            self._missing.difference_update(found.values())

    # -- learning -----------------------------------------------------------------------------------------------------
    def update(self, move: Move) -> None:
        """Add the lines of new jobs to the roster, and continue the walk unless it pauses."""
        self.roster.wake(move.mono / 1_000_000)
        rows = move.run("arrived", after=self._newest_job, limit=NEW_JOBS).fetchall()
        self._newest_job = max((row[0] for row in rows), default=self._newest_job)
        self.add((lane, prio, owner) for _, lane, prio, owner, waits in rows if waits)
        if not self.rests(move):
            for _ in range(1 if self._walked or len(self.roster) else PIECES):
                if not self._walk(move):
                    break

    def rests(self, move: Move) -> bool:
        """Return whether the walk pauses because it has reached the end of the index a short time ago."""
        return move.mono < self._rests_until

    def scan_all(self, move: Move) -> bool:
        """Continue the walk until it finds lines or has read the whole index, and return whether the roster has lines."""
        began, turned = self._at, self._at == START
        for _ in range(PIECES):
            more = self._walk(move)
            if len(self.roster):
                return True
            if turned and (not more or self._at >= began > START):
                return False
            turned = turned or not more
        return False

    def _walk(self, move: Move) -> bool:
        """Continue the walk by one piece, and return False if it has reached the end of the index."""
        began = move.mono
        rows = move.run("waiting", lane=self._at[0], prio=self._at[1], limit=STEPS).fetchall()
        self.add(rows)
        self._took += move.mono - began
        if len(rows) == STEPS:
            self._at = rows[-1][:2]
            return True
        self._rests_until = move.mono + max(PATIENCE * self._took, SHORTEST_REST)
        self._at, self._took, self._walked = START, 0, True
        return False

    def add(self, found: Iterable[tuple[int, int, str | None]]) -> None:
        """Add lines to the roster. Each is given as a lane, a prio and the owner of its next job."""
        for lane, prio, owner in found:
            if lane in self.lanes:
                self.roster.add(RosterLine(lane, prio, owner or NO_OWNER))

    def start_after(self, move: Move) -> None:
        """Leave all jobs that exist now to the walk."""
        [(newest,)] = move.connection.execute("SELECT max(id) FROM holdfast_job")
        self._newest_job = newest or 0

    # -- choosing -----------------------------------------------------------------------------------------------------
    def choose(self, move: Move, levels: Sequence[str], most: int, trial: bool) -> list[RosterLine]:
        """Remove up to *most* lines from the roster that are not held, and return them. Held lines are set aside.

        The list is empty if the roster has no such lines.
        """
        if trial:  # a trial may read lines that were set aside because of a breaker
            self.roster.wake()
        for _ in range(0, MOST_HELD, most):
            chosen = [line for line in self.roster.choose(levels, most) if line.lane in self.lanes]
            lanes = [self.lanes[line.lane] for line in chosen]
            unheld = open_lanes(move.connection, move.now, lanes, trial)
            if unheld is not lanes:
                free = set(unheld)
                held = [line for line in chosen if self.lanes[line.lane] not in free]
                self.roster.hold(held, move.mono / 1_000_000)
                chosen = [line for line in chosen if self.lanes[line.lane] in free]
            if chosen or not len(self.roster):
                return chosen
        return []

    def give_back(self, move: Move, lines: dict[RosterLine, int | None]) -> None:
        """Add lines that may have more jobs to the roster again, each under the owner of its next job.

        *lines* has the number of the next job of each line, or None if it is not known.
        """
        rows = move.connection.execute(
            "SELECT id, owner FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?))",
            (to_json([number for number in lines.values() if number is not None]),),
        )
        owners = dict(rows.fetchall())
        for line, number in lines.items():
            owner = line.owner if number is None else owners.get(number) or NO_OWNER
            self.roster.add(line._replace(owner=owner))


class LaneCrowds:
    """The crowds of one process: one for each set of many lanes that it claims from together."""

    def __init__(self) -> None:
        self._crowds: dict[tuple[object, ...], LaneCrowd] = {}

    def __bool__(self) -> bool:
        """Return whether there are any crowds."""
        return bool(self._crowds)

    def find(self, move: Move, lanes: Sequence[Lane], caps: Sequence[Cap]) -> LaneCrowd | None:
        """Return the crowd of these *lanes*, which are more than `FEW`; None if few of them exist."""
        # A worker lists its lanes again every few seconds, so the key is what all of them have in common.
        key = (lanes[0].dependency, lanes[0].shard, *(cap.scope for cap in caps))
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = LaneCrowd()
            crowd.start_after(move)
        crowd.serve(move, lanes)
        return crowd if len(crowd.lanes) > FEW else None

    def wake(self) -> None:
        """Check the held lines again with the next claim, because a hold has ended."""
        for crowd in self._crowds.values():
            crowd.roster.wake()
