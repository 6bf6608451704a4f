"""One worker's guard of one dependency: may a call begin, and what did it tell?

It joins the three mechanisms. The *limiter* says how many calls may be under way. The *breaker* stops them all: the shared one,
as it was last heard of, and one of the worker's own, which is the same machine with a single voter. The own breaker acts
at once, before anybody else has heard of it, and alone where only this worker has the trouble (a bad node stops itself, not the
fleet). That it is not closed is the worker's vote. The *budget* is asked for retries only.

Pure but for its own memory: time and chance come in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from holdfast.domain.breaker import Breaker, BreakerPolicy, BreakerState, Ring, end_trial, judge, take_trial
from holdfast.domain.budget import Budget, BudgetPolicy
from holdfast.domain.limiter import Limiter, LimiterPolicy
from holdfast.domain.outcome import Outcome

#: No limit: as many as the worker has slots.
UNLIMITED = 1_000_000
#: A worker that began no call for this long does not count among the callers.
CALLER_SECONDS = 60.0
_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyPolicy:
    """How calls to a dependency are guarded. None switches a mechanism off."""

    breaker: BreakerPolicy | None = field(default_factory=BreakerPolicy)
    limiter: LimiterPolicy | None = field(default_factory=LimiterPolicy)
    budget: BudgetPolicy | None = field(default_factory=BudgetPolicy)


@dataclass(slots=True)
class Call:
    """A call under way."""

    number: int
    began: float  #: whoever stands in line for a while before the call may set it anew
    paid: int  #: tokens of the budget; 0 for a first try
    trial: str | None  #: the slot of the worker's own breaker that it runs in


class Guard:
    """*now* is seconds of the worker's monotonic clock, in all methods. *workers* is the size of the fleet, this one included."""

    def __init__(
        self,
        policy: DependencyPolicy,
        now: float,
        *,
        workers: int = 1,
        start: float | None = None,
        at_rest: float | None = None,
    ) -> None:
        self.policy = policy
        self.workers = max(1, workers)
        self.shared = Breaker()
        self.own = Breaker()
        self.ring = None if policy.breaker is None else Ring(policy.breaker)
        self.limiter = None if policy.limiter is None else Limiter(policy.limiter, now, start, at_rest)
        self.budget = None if policy.budget is None else Budget(policy.budget, now, workers=self.workers)
        self.calls = self.failures = 0  #: that have ended
        self._number = 0
        self._last_call: float | None = None

    # -- before a call ------------------------------------------------------------------------------------------------
    def room(self, now: float) -> int:
        """How many calls may begin now. Trials of the shared breaker are not among them: the store lends those."""
        if self.shared.state is not BreakerState.CLOSED:
            return 0
        if self.own.state is not BreakerState.CLOSED:
            self._judge(now)
        room = UNLIMITED if self.limiter is None else self.limiter.room
        match self.own.state:
            case BreakerState.CLOSED:
                return room
            case BreakerState.OPEN:
                return 0
            case BreakerState.HALF_OPEN:
                return min(self.own.free_trials(_at(now)), max(1, room))

    def begin(self, now: float, *, paid: int = 0) -> Call:
        """A call begins. Whoever calls has asked `room` before, or holds a trial of the shared breaker."""
        self._last_call = now
        if self.limiter is not None:
            self.limiter.started(now)
        trial = None
        if self.ring is None:
            self._number += 1
            return Call(self._number, now, paid, trial)
        number = self.ring.started(now)
        if self.own.state is BreakerState.HALF_OPEN and self.shared.state is BreakerState.CLOSED:
            # One that is not answered within a cooldown gives its slot to the next.
            until = _at(now) + self.ring.policy.cooldown
            self._number += 1
            lent = take_trial(self.own, str(self._number), now=_at(now), until=until)
            if lent is not None:
                self.own, trial = lent, str(self._number)
        return Call(number, now, paid, trial)

    def is_tripped(self, now: float) -> bool:
        """Whether the worker's own breaker is open."""
        self._judge(now)
        return self.own.state is BreakerState.OPEN

    # -- after a call -------------------------------------------------------------------------------------------------
    def end(self, call: Call, outcome: Outcome, now: float) -> None:
        self.calls += 1
        if self.limiter is not None:
            self.limiter.ended(now - call.began, outcome, now)
        if outcome is Outcome.OK or outcome is Outcome.SLOW:
            if self.budget is not None:
                self.budget.succeeded(call.paid)
        elif outcome is Outcome.FAILED:
            self.failures += 1
        ring = self.ring
        if ring is None or (ring.is_calm and outcome is Outcome.OK and call.trial is None):
            return  # one more success among nothing but successes
        ring.ended(call.number, outcome, now)
        if call.trial is not None:
            self.own = end_trial(self.own, call.trial, outcome) or self.own
        self._judge(now)

    # -- about once a second ------------------------------------------------------------------------------------------
    def vote(self, now: float) -> bool:
        """Whether this worker holds the dependency for broken. It goes to the store with the version of `shared`."""
        self._judge(now)
        return self.own.state is not BreakerState.CLOSED

    def calls_it(self, now: float) -> bool:
        """Whether this worker counts among the callers."""
        recent = self._last_call is not None and now - self._last_call <= CALLER_SECONDS
        return recent or self.own.state is not BreakerState.CLOSED

    def hear(self, shared: Breaker, workers: int, now: float) -> None:
        """Take note of the shared breaker and of the fleet's size, as the store has them."""
        if workers != self.workers:
            self.workers = max(1, workers)
            if self.budget is not None:
                self.budget.resize(self.workers)
        if shared.version <= self.shared.version:
            return
        was, self.shared = self.shared.state, shared
        if shared.state is not was:
            self.own = Breaker()  # the shared one decides now
            if shared.state is BreakerState.CLOSED:
                self._recover(now)

    def _judge(self, now: float) -> None:
        """Move the worker's own breaker on."""
        if self.ring is None or self.shared.state is not BreakerState.CLOSED:
            return
        if self.own.state is BreakerState.CLOSED and not self.ring.vote(now):
            return
        # No chance: a worker's own trials are too few to be a herd.
        moved = judge(self.own, self.ring.policy, votes=1, callers=1, now=_at(now), chance=0.5)
        if moved is None:
            return
        self.own = moved
        if moved.state is BreakerState.CLOSED:
            self._recover(now)

    def _recover(self, now: float) -> None:
        if self.ring is not None:
            self.ring.clear()
        if self.limiter is not None:
            self.limiter.restart(1 / self.workers, now)


def _at(now: float) -> datetime:
    """A moment for the own breaker: it compares them among themselves only."""
    return _START + timedelta(seconds=now)
