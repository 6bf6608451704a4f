"""Claims over many lanes: which lines have jobs waiting is kept in a roster, so that a claim looks at a few lines only.

The roster learns of lines in two ways. Jobs that are new are those with the highest numbers. All other lines with jobs are
found by a walk along the index that goes on from claim to claim and takes one step for each line, however long it is; it
rests for many times as long as it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.domain.job import Lane
from holdfast.domain.roster import NOBODY, Roster, RosterLine
from holdfast.engine.lane_store import Cap
from holdfast.stores.encoding import to_json
from holdfast.stores.sqlite.holds import open_lanes
from holdfast.stores.sqlite.move import Move

#: Up to this many lanes are looked at by every claim.
FEW = 64
#: How many new jobs a claim looks at, and how many steps of the walk: in pieces, several where it has found nothing else.
NEW_JOBS, STEPS, PIECES = 1000, 100, 10
#: How many lines a claim looks at while all of them are held.
MOST_HELD = 1000
#: The walk rests for this many times as long as it took, and for this many microseconds at the least.
PATIENCE, SHORTEST_REST = 20, 250_000
#: Before the first line.
START = (-1, 0)


class LaneCrowd:
    """Lanes that are claimed from together, and the roster of their lines."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.lanes: dict[int, Lane] = {}  #: those that exist, by number
        self._asked: Sequence[Lane] = ()
        self._missing: set[Lane] = set()
        self._newest = self._newest_job = 0
        self._at, self._took, self._rests_until = START, 0, 0
        self._walked = False  #: it has come round once

    def serve(self, move: Move, lanes: Sequence[Lane]) -> None:
        """From now on this is about *lanes*. Those that do not exist yet are looked for whenever a lane was made."""
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
    def look(self, move: Move) -> None:
        """Learn of new jobs, and go on with the walk unless it rests."""
        self.roster.wake(move.mono / 1_000_000)
        rows = move.run("arrived", after=self._newest_job, limit=NEW_JOBS).fetchall()
        self._newest_job = max((row[0] for row in rows), default=self._newest_job)
        self.add((lane, prio, owner) for _, lane, prio, owner, waits in rows if waits)
        if not self.rests(move):
            for _ in range(1 if self._walked or len(self.roster) else PIECES):
                if not self._walk(move):
                    break

    def rests(self, move: Move) -> bool:
        """Whether the walk has come round lately."""
        return move.mono < self._rests_until

    def scan_all(self, move: Move) -> bool:
        """Go on with the walk until it finds lines, or has come round; whether it has found any."""
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
        """Go on with the walk by one piece; whether there may be more behind."""
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
        """List the lines of these lanes, priorities and owners."""
        for lane, prio, owner in found:
            if lane in self.lanes:
                self.roster.add(RosterLine(lane, prio, owner or NOBODY))

    def start_after(self, move: Move) -> None:
        """Leave jobs that are there already to the walk."""
        [(newest,)] = move.connection.execute("SELECT max(id) FROM holdfast_job")
        self._newest_job = newest or 0

    # -- choosing -----------------------------------------------------------------------------------------------------
    def choose(self, move: Move, levels: Sequence[str], most: int, trial: bool) -> list[RosterLine]:
        """Take up to *most* lines that nothing holds out of the roster; held lines are put aside. None: it lists no others."""
        if trial:  # it passes the breaker that they were put aside for
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
        """List those again that may have more, each under the owner of its next job: the number of that job, if it is known."""
        rows = move.connection.execute(
            "SELECT id, owner FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?))",
            (to_json([number for number in lines.values() if number is not None]),),
        )
        owners = dict(rows.fetchall())
        for line, number in lines.items():
            owner = line.owner if number is None else owners.get(number) or NOBODY
            self.roster.add(line._replace(owner=owner))


class LaneCrowds:
    """The crowds of one process: one for each set of lanes that it claims from together, if they are many."""

    def __init__(self) -> None:
        self._crowds: dict[tuple[object, ...], LaneCrowd] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._crowds)

    def find(self, move: Move, lanes: Sequence[Lane], caps: Sequence[Cap]) -> LaneCrowd | None:
        """Return the crowd of these lanes; None where they are few."""
        if len(lanes) <= FEW:
            return None
        # A worker lists its lanes anew every few seconds: what they have in common stays.
        key = (lanes[0].dependency, lanes[0].shard, *(cap.scope for cap in caps))
        crowd = self._crowds.get(key)
        if crowd is None:
            crowd = self._crowds[key] = LaneCrowd()
            crowd.start_after(move)
        crowd.serve(move, lanes)
        return crowd if len(crowd.lanes) > FEW else None

    def wake(self) -> None:
        """Something is not held any more."""
        for crowd in self._crowds.values():
            crowd.roster.wake()
