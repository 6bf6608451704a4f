"""Whose turn it is where jobs wait in very many lanes: a claim looks at a few lines, however many there are.

A line is the jobs of one lane and one priority. The roster lists the lines that may have jobs waiting, under the owner
whose job is next. A claim takes lines level by level, better priorities first; within a priority owners take turns, and
the lines of one owner take turns. So ten thousand lanes of one owner get one turn where one lane of another owner gets one.

The roster is a hint that each process keeps for itself. A line that is missing is found by the store's next look; a line
that is empty costs one look and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.domain.fairness import level_of

#: The owner of jobs that have none.
NOBODY = ""
#: A line that is held is looked at again after this many seconds, and no more than this many of them in a second.
HELD_FOR, HELD_A_SECOND = 1.0, 2000
#: The most lines a roster lists. Those beyond are found by later looks.
MOST_LINES = 100_000


class RosterLine(NamedTuple):
    """A line, and the owner under whom it is listed."""

    lane: int
    prio: int  #: the priority, negated as the stores keep it
    owner: str = NOBODY


class Roster:
    """The lines that may have jobs waiting. *choose* takes lines out; the caller gives those back that may have more."""

    def __init__(self) -> None:
        self._lines: dict[int, dict[str, dict[int, None]]] = {}  #: by priority, owner and lane: oldest first
        self._held: dict[RosterLine, float] = {}  #: by when it is looked at again, soonest first
        self._count = 0

    def __len__(self) -> int:
        """Return how many lines can be chosen."""
        return self._count

    def add(self, line: RosterLine) -> None:
        """List *line* last of its owner's, unless it is listed there or put aside already."""
        if line in self._held:
            return
        lanes = self._lines.setdefault(line.prio, {}).setdefault(line.owner, {})
        if line.lane not in lanes and self._count < MOST_LINES:
            lanes[line.lane] = None
            self._count += 1

    def choose(self, levels: Iterable[str], most: int) -> list[RosterLine]:
        """Take out up to *most* lines in the order of their turns: the levels as given, in each the best priority first."""
        chosen: list[RosterLine] = []
        for level in levels:
            for prio in sorted(prio for prio in self._lines if level_of(-prio) == level):
                self._choose(prio, most, chosen)
        return chosen

    def _choose(self, prio: int, most: int, chosen: list[RosterLine]) -> None:
        owners = self._lines[prio]
        seen: set[int] = set()
        twice: list[RosterLine] = []
        while owners and len(chosen) < most:
            owner = next(iter(owners))
            lanes = owners.pop(owner)
            lane = next(iter(lanes))
            del lanes[lane]
            self._count -= 1
            if lanes:
                owners[owner] = lanes  # behind the others
            line = RosterLine(lane, prio, owner)
            (twice if lane in seen else chosen).append(line)
            seen.add(lane)
        for line in twice:  # it was chosen for another owner
            self.add(line)
        if not owners:
            del self._lines[prio]

    def hold(self, lines: Sequence[RosterLine], now: float) -> None:
        """Put held lines aside for a while."""
        for line in lines:
            self._held.pop(line, None)
            self._held[line] = now + max(HELD_FOR, len(self._held) / HELD_A_SECOND)

    def wake(self, now: float | None = None) -> None:
        """List the held lines again whose time is up; all of them without *now*."""
        while self._held:
            line = next(iter(self._held))
            if now is not None and self._held[line] > now:
                return
            del self._held[line]
            self.add(line)
