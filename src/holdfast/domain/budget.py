"""The retry budget of a dependency: retries are paid for by successes (E17).

A bucket of tokens. A retry takes some out; if it succeeds it puts them back, if it fails they are gone. Every success at
the first try puts one in. So retries are free while they help, and stop when they do not: after an outage most work
*is* retries, and they must not wait for each other, but a service that fails every one of them must not be asked by all.
A retry that cannot be paid is put off. It is not lost and burns no attempt.

Each worker has its share of the bucket, so that no token is ever fetched from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.domain.codes import ErrorClass
from holdfast.domain.duration import Duration
from holdfast.domain.validation import number, span, whole
from holdfast.errors import UsageError

#: How much a refusal lengthens the next put-off, and a retry that was let through shortens it.
STEP = 1.02
#: The longest put-off, in floors.
LONGEST_WAIT = 12.0


@dataclass(frozen=True, slots=True, init=False)
class BudgetPolicy:
    """*capacity* tokens for the whole fleet; a retry costs *cost*, after throttling *throttled_cost*.

    The last *reserve* of them is for urgent jobs. One retry each *floor* is always allowed: it is how recovery is noticed.
    """

    capacity: int
    cost: int
    throttled_cost: int
    reserve: float
    floor: timedelta

    def __init__(
        self,
        *,
        capacity: int = 500,
        cost: int = 14,
        throttled_cost: int = 5,
        reserve: float = 0.2,
        floor: Duration = "10s",
    ) -> None:
        set_ = object.__setattr__
        set_(self, "capacity", whole("capacity", capacity, 1, 10**9))
        set_(self, "cost", whole("cost", cost, 1, 10**6))
        set_(self, "throttled_cost", whole("throttled_cost", throttled_cost, 1, 10**6))
        if max(cost, throttled_cost) > capacity:
            raise UsageError(
                f"capacity is {capacity}; it must pay for one retry ({max(cost, throttled_cost)}) at least"
            )
        set_(self, "reserve", number("reserve", reserve, 0, 0.9))
        set_(self, "floor", span("floor", floor, timedelta(milliseconds=10), timedelta(days=1)))

    def cost_of(self, error_class: ErrorClass) -> int:
        """What a retry costs after a failure of this class."""
        return self.throttled_cost if error_class is ErrorClass.THROTTLED else self.cost


class Budget:
    """One worker's share of a dependency's budget. *now* is seconds of a monotonic clock."""

    def __init__(self, policy: BudgetPolicy, now: float, *, workers: int = 1) -> None:
        self.policy = policy
        self.workers = max(1, workers)
        self.capacity = policy.capacity / self.workers
        self.tokens = self.capacity
        self._floor_at = now + self._floor  #: from when on a retry needs no tokens
        self._crowd = 1.0  #: the next put-off, in floors

    @property
    def _floor(self) -> float:
        return self.policy.floor.total_seconds() * self.workers

    def resize(self, workers: int) -> None:
        """The fleet has another size: the same part of another share."""
        filled = self.tokens / self.capacity
        self.workers = max(1, workers)
        self.capacity = self.policy.capacity / self.workers
        self.tokens = filled * self.capacity

    def adopt(self, policy: BudgetPolicy, now: float) -> None:
        """Go by another policy: the same part of another bucket."""
        self.policy = policy
        self.resize(self.workers)
        self._floor_at = min(self._floor_at, now + self._floor)

    def take(self, cost: int, now: float, *, urgent: bool = False) -> bool:
        """Pay for a retry, if that can be: else it is to be put off by `wait`."""
        kept = 0.0 if urgent else self.policy.reserve * self.capacity
        # A share of a large fleet may be smaller than the price: a full one pays for one retry anyway.
        price = min(float(cost), self.capacity - kept)
        if self.tokens - price >= kept:
            self.tokens -= price
        elif now >= self._floor_at:
            # It takes what there is. If it succeeds it brings the whole price, and the next can pay.
            self.tokens = max(0.0, self.tokens - price)
            self._floor_at = now + self._floor
        else:
            self._crowd = min(LONGEST_WAIT, self._crowd * STEP)
            return False
        self._crowd = max(1.0, self._crowd / STEP)
        return True

    def succeeded(self, paid: int = 0) -> None:
        """A call succeeded: at the first try, or as a retry that had *paid* so much and gets it back."""
        if self.tokens < self.capacity:
            self.tokens = min(self.capacity, self.tokens + (paid or 1))

    def wait(self, chance: float) -> timedelta:
        """How long to put off a retry that was refused.

        It settles where as many are let through as are refused: then those who wait come again when it is their turn,
        and not ten times before.
        """
        return self.policy.floor * (self._crowd * (1 + chance))
