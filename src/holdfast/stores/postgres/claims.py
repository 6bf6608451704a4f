"""Where the next claim should look: which lines have somebody, and from which place on.

The cursor is a hint that keeps a claim from walking over the dead rows at the head of a line, which pile up while somebody
holds an old snapshot open. Correctness never depends on it: a lower place may commit later, so every so often, and whenever
nothing was found, a claim starts from the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.engine.ports import Clock

_START = (-(2**62), "00000000-0000-0000-0000-000000000000")
#: A full look is repeated after this many times its own duration, and not before a second has passed.
_PATIENCE, _AT_LEAST = 20, 1.0


class Cursors:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._from: dict[tuple[int, int], tuple[int, Any]] = {}
        self._prios: dict[int, set[int]] = {}
        self._turn = 0
        self._full_at = 0.0
        self._began = 0.0

    def probes(self, lanes: Sequence[int]) -> tuple[list[int], list[int], list[int], list[Any]]:
        """(lanes, prios, ords, ids) to look at: better priorities first, lanes of one priority in turn."""
        self._began = self._clock.monotonic()
        if self._began >= self._full_at:
            self._from.clear()
        self._turn += 1
        turned = [lanes[(place + self._turn) % len(lanes)] for place in range(len(lanes))]
        pairs = [(prio, lane) for lane in turned for prio in self._prios.get(lane, {0})]
        pairs.sort(key=lambda pair: pair[0])
        starts = [self._from.get((lane, prio), _START) for prio, lane in pairs]
        return (
            [lane for _, lane in pairs],
            [prio for prio, _ in pairs],
            [s[0] for s in starts],
            [s[1] for s in starts],
        )

    @property
    def was_full(self) -> bool:
        return not self._from

    def saw(self, rows: Sequence[Any]) -> None:
        """Remember where the claimed jobs stood."""
        now = self._clock.monotonic()
        if self.was_full:
            self._full_at = now + max(_AT_LEAST, _PATIENCE * (now - self._began))
        seen: set[tuple[int, int]] = set()
        for row in rows:  # in order: the first of each line is its lowest place
            line = row["lane"], row["prio"]
            if line not in seen:
                seen.add(line)
                self._from[line] = row["ord"], row["job_id"]

    def restart(self) -> None:
        self._from.clear()

    def know(self, lines: Sequence[Any]) -> None:
        """Learn which (lane, prio) have somebody."""
        for lane, prio in lines:
            self._prios.setdefault(lane, {0}).add(prio)
