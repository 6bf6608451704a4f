"""The order of jobs: priority levels take turns by weight, owners within a line by stride scheduling.

A fair line is ordered by *pass*. An owner's next job gets the pass of the owner's last job plus a stride
(shorter for a larger weight), but at least the pass at the head of the line. So a new owner is served next,
and no owner can save up turns. A claim is one ordered scan, however many owners there are.

A job of a fair lane enters the line *unplaced*, ordered by its time in microseconds, and gets its pass
afterwards, outside of the caller's transaction. Passes and times share the column `ord`, so passes stay below
`UNPLACED`, a time in 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.errors import UsageError

#: From here on, a place in a line is a time (microseconds since 1970), not a pass.
UNPLACED = 1 << 50
#: The stride of an owner of weight 1.
STRIDE = 1000  # the heaviest owner has stride 1; at weight 1 passes suffice for 10^12 jobs
LIGHTEST, HEAVIEST = 0.001, 1000.0

#: Named priorities. Any number is a priority and belongs to the level of its sign.
LEVELS: Mapping[str, int] = {"high": 10, "normal": 0, "low": -10}
WEIGHTS: Mapping[str, int] = {"high": 8, "normal": 4, "low": 1}


def stride(weight: float) -> int:
    """Return the stride of an owner of this *weight*; raise `UsageError` if the weight is out of range."""
    if not LIGHTEST <= weight <= HEAVIEST:
        raise UsageError(f"weight is {weight!r}; it is a number from {LIGHTEST} to {HEAVIEST:.0f}")
    return round(STRIDE / weight)


def level_of(priority: int) -> str:
    return "high" if priority > 0 else "low" if priority < 0 else "normal"


@dataclass(slots=True)
class Turns:
    """The turns of the priority levels.

    By default, of 13 claims 8 start with high, 4 with normal and 1 with low. The other levels follow in
    order, so that no job waits while there is a free slot.
    """

    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    _turn: int = 0

    def next(self) -> tuple[str, ...]:
        """Return the levels in the order for the next claim."""
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
    """Return the passes of new jobs.

    Args:
        owners: The owners of the new jobs, in the order of arrival.
        last: The latest pass of each owner.
        head: The pass at the head of the line, or of the last job that left it.
        weights: The weights of the owners; the default is 1.
    """
    latest = dict(last)
    passes: list[int] = []
    for owner in owners:
        step = stride(weights.get(owner, 1.0))
        latest[owner] = max(head, latest[owner] + step) if owner in latest else head
        passes.append(latest[owner])
    return passes
