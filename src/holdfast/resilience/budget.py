"""The retry budget of a dependency: successes pay for retries (E17).

The budget is a bucket of tokens. A retry takes tokens out. If it succeeds it puts them back, if it fails they
are gone. Every success at the first try adds one. So retries are free while they help and stop when they do
not: after an outage most work *is* retries, which must not block each other, but a service that fails all of
them must not get them all. A retry without enough tokens is put off. It is not lost, and no attempt is
counted.

Each worker has its own share of the bucket, so that tokens are never fetched from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.values.duration import Duration
from holdfast.values.validation import number, span, whole

#: The factor by which a refusal lengthens the next delay and an allowed retry shortens it.
STEP = 1.02
#: The longest delay of a refused retry, in units of the floor.
LONGEST_WAIT = 12.0


@dataclass(frozen=True, slots=True, init=False)
class BudgetPolicy:
    """A budget of *capacity* tokens for the whole fleet.

    A retry costs *cost*, after throttling *throttled_cost*. The share *reserve* of the tokens is for urgent
    jobs only. One retry per *floor* is always allowed, so that a recovery is noticed.
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
        """Return what a retry costs after a failure of this class."""
        return self.throttled_cost if error_class is ErrorClass.THROTTLED else self.cost


class Budget:
    """One worker's share of a dependency's budget. *now* is seconds of a monotonic clock."""

    def __init__(self, policy: BudgetPolicy, now: float, *, workers: int = 1) -> None:
        self.policy = policy
        self.workers = max(1, workers)
        self.capacity = policy.capacity / self.workers
        self.tokens = self.capacity
        self._floor_at = now + self._floor  #: when a retry is allowed without tokens
        self._delay = 1.0  #: the next delay, in units of the floor

    @property
    def _floor(self) -> float:
        return self.policy.floor.total_seconds() * self.workers

    def resize(self, workers: int) -> None:
        """Adapt the share to a fleet of *workers*; it stays as full as it was."""
        filled = self.tokens / self.capacity
        self.workers = max(1, workers)
        self.capacity = self.policy.capacity / self.workers
        self.tokens = filled * self.capacity

    def adopt(self, policy: BudgetPolicy, now: float) -> None:
        """Switch to another policy; the share stays as full as it was."""
        self.policy = policy
        self.resize(self.workers)
        self._floor_at = min(self._floor_at, now + self._floor)

    def take(self, cost: int, now: float, *, urgent: bool = False) -> bool:
        """Pay for a retry and return True, or return False when the retry must be put off by `wait`."""
        kept = 0.0 if urgent else self.policy.reserve * self.capacity
        # In a large fleet a share may be smaller than the price: a full share then pays for one retry.
        price = min(float(cost), self.capacity - kept)
        if self.tokens - price >= kept:
            self.tokens -= price
        elif now >= self._floor_at:
            # It takes what is left. If it succeeds it puts back the whole price, and the next retry can pay.
            self.tokens = max(0.0, self.tokens - price)
            self._floor_at = now + self._floor
        else:
            self._delay = min(LONGEST_WAIT, self._delay * STEP)
            return False
        self._delay = max(1.0, self._delay / STEP)
        return True

    def succeeded(self, paid: int = 0) -> None:
        """Add tokens for a successful call: one for a first try, or what a retry has *paid*."""
        if self.tokens < self.capacity:
            self.tokens = min(self.capacity, self.tokens + (paid or 1))

    def wait(self, chance: float) -> timedelta:
        """Return how long to put off a refused retry.

        The delay settles where as many retries are allowed as refused, so that a waiting retry does not try
        many times in vain.
        """
        return self.policy.floor * (self._delay * (1 + chance))
