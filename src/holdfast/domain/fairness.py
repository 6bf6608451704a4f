"""Who is next: levels of priority by weight, owners within a line by stride.

A fair line is ordered by *pass*. An owner's next job gets the pass of the owner's last one plus a stride (shorter for who
weighs more), but never less than the pass at the head of the line: a new owner is served next and has no claim on
the past. A claim then is one ordered scan, however many owners there are.

A job of a fair lane enters the line *unplaced*, at its moment in microseconds, and is placed afterwards, outside of the
caller's transaction: passes and moments share the column `ord`, so passes stay below `UNPLACED`, which lies in 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.errors import UsageError

#: Places in line from here on are moments (microseconds since 1970), not passes.
UNPLACED = 1 << 50
#: What one job of an owner of weight 1 costs.
STRIDE = 1000  # the heaviest owner pays 1; at weight 1 a line lasts for 10^12 jobs
LIGHTEST, HEAVIEST = 0.001, 1000.0

#: Named levels of priority; any number is one, and belongs to the level of its sign.
LEVELS: Mapping[str, int] = {"high": 10, "normal": 0, "low": -10}
WEIGHTS: Mapping[str, int] = {"high": 8, "normal": 4, "low": 1}


def stride(weight: float) -> int:
    """What one job costs an owner of this weight."""
    if not LIGHTEST <= weight <= HEAVIEST:
        raise UsageError(f"weight is {weight!r}; it is a number from {LIGHTEST} to {HEAVIEST:.0f}")
    return round(STRIDE / weight)


def level_of(priority: int) -> str:
    return "high" if priority > 0 else "low" if priority < 0 else "normal"


@dataclass(slots=True)
class Turns:
    """Which level a claim looks at first: high 8 times, normal 4 times, low once, and so on. The others follow in order,
    so that nothing waits while there is room: only who is first changes."""

    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    _turn: int = 0

    def next(self) -> tuple[str, ...]:
        """The levels in the order of this claim."""
        turn = self._turn % sum(self.weights.values())
        self._turn += 1
        first = ""
        for name in LEVELS:
            if turn < self.weights[name]:
                first = name
                break
            turn -= self.weights[name]
        return (first, *(name for name in LEVELS if name != first))


def place(
    owners: Sequence[str], last: Mapping[str, int], head: int, weights: Mapping[str, float]
) -> list[int]:
    """The passes of new jobs of these *owners*, in the order they came. *last* are the owners' latest passes, *head* is
    the pass at the head of the line (or of the last job that left it)."""
    latest = dict(last)
    passes: list[int] = []
    for owner in owners:
        step = stride(weights.get(owner, 1.0))
        latest[owner] = max(head, latest[owner] + step) if owner in latest else head
        passes.append(latest[owner])
    return passes
