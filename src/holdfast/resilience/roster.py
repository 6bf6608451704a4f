"""The roster of lines: it picks the few lines that a claim reads when jobs wait in very many lanes.

A line is the jobs of one lane and one priority. The roster lists the lines that may have jobs waiting, under
the owner whose job is next. A claim takes lines level by level, better priorities first. Within a priority
owners take turns, and the lines of one owner take turns. So ten thousand lanes of one owner get as many turns
as one lane of another owner.

The roster is a hint that each process keeps for itself. The store's next scan finds a missing line; an empty
line costs one query and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.resilience.fairness import level_of

#: The owner of jobs without an owner.
NO_OWNER = ""
#: A held line is checked again after this many seconds; at most this many held lines are checked per second.
HELD_SECONDS, CHECKS_PER_SECOND = 1.0, 2000
#: The most lines that a roster lists. Later scans find the others.
MOST_LINES = 100_000


class RosterLine(NamedTuple):
    """A line, and the owner under whom it is listed."""

    lane: int
    prio: int  #: the negated priority, as the stores keep it
    owner: str = NO_OWNER


class Roster:
    """The lines that may have jobs waiting.

    `choose` removes lines; the caller adds those again that may have more jobs.
    """

    def __init__(self) -> None:
        self._lines: dict[int, dict[str, dict[int, None]]] = {}  #: by priority, owner and lane: oldest first
        self._held: dict[RosterLine, float] = {}  #: when each held line is checked again, soonest first
        self._count = 0

    def __len__(self) -> int:
        """Return the number of lines that can be chosen."""
        return self._count

    def add(self, line: RosterLine) -> None:
        """Add *line* behind the other lines of its owner, unless it is listed or held already."""
        if line in self._held:
            return
        lanes = self._lines.setdefault(line.prio, {}).setdefault(line.owner, {})
        if line.lane not in lanes and self._count < MOST_LINES:
            lanes[line.lane] = None
            self._count += 1

    def choose(self, levels: Iterable[str], most: int) -> list[RosterLine]:
        """Remove and return up to *most* lines in the order of their turns.

        The levels come in the given order, in each level the best priority first.
        """
        chosen: list[RosterLine] = []
        for level in levels:
            for prio in sorted(prio for prio in self._lines if level_of(-prio) == level):
                self._choose(prio, most, chosen)
        return chosen

    def _choose(self, prio: int, most: int, chosen: list[RosterLine]) -> None:
        owners = self._lines[prio]
        seen: set[int] = set()
        duplicates: list[RosterLine] = []
        while owners and len(chosen) < most:
            owner = next(iter(owners))
            lanes = owners.pop(owner)
            lane = next(iter(lanes))
            del lanes[lane]
            self._count -= 1
            if lanes:
                owners[owner] = lanes  # behind the others
            line = RosterLine(lane, prio, owner)
            (duplicates if lane in seen else chosen).append(line)
            seen.add(lane)
        for line in duplicates:  # the lane was chosen for another owner
            self.add(line)
        if not owners:
            del self._lines[prio]

    def hold(self, lines: Sequence[RosterLine], now: float) -> None:
        """Set held lines aside for a while."""
        for line in lines:
            self._held.pop(line, None)
            self._held[line] = now + max(HELD_SECONDS, len(self._held) / CHECKS_PER_SECOND)

    def wake(self, now: float | None = None) -> None:
        """Add the held lines again that are due for a check at *now*, or all of them if it is None."""
        while self._held:
            line = next(iter(self._held))
            if now is not None and self._held[line] > now:
                return
            del self._held[line]
            self.add(line)
