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
from holdfast.domain.lanes import Dependency
from holdfast.domain.limiter import Limiter, LimiterPolicy
from holdfast.domain.outcome import Outcome, outcome_of
from holdfast.errors import UsageError

#: No limit: as many as the worker has slots.
UNLIMITED = 1_000_000
#: A worker that began no call for this long does not count among the callers.
CALLER_SECONDS = 60.0
#: Named here because a look into an enum takes as long as the rest of what is done for a call that went well.
_OK, _SLOW, _FAILED = Outcome.OK, Outcome.SLOW, Outcome.FAILED
_CLOSED, _HALF_OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN
_SOMEBODY = Dependency("")
_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyPolicy:
    """How calls to a dependency are guarded. None switches a mechanism off."""

    breaker: BreakerPolicy | None = field(default_factory=BreakerPolicy)
    limiter: LimiterPolicy | None = field(default_factory=LimiterPolicy)
    budget: BudgetPolicy | None = field(default_factory=BudgetPolicy)

    def __post_init__(self) -> None:
        kinds = {"breaker": BreakerPolicy, "limiter": LimiterPolicy, "budget": BudgetPolicy}
        for name, kind in kinds.items():
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                raise UsageError(f"{name} is {given!r}; it is a {kind.__name__}, or None to switch it off")


@dataclass(slots=True)
class CallPermit:
    """Leave for one call, until it has ended."""

    guard: DependencyGuard
    number: int
    began: float  #: a caller that waits before the call may set it anew
    paid: int  #: tokens of the budget; 0 for a first try
    own_trial: str | None  #: the slot of the worker's own breaker that it runs in
    trial: str | None = None  #: the slot of the shared breaker that it runs in
    heir: CallPermit | None = None  #: the call that it was handed over to
    outcome: Outcome = _OK  #: once it has ended


class DependencyGuard:
    """*now* is seconds of the worker's monotonic clock, in all methods. *workers* is the size of the fleet, this one included."""

    def __init__(
        self,
        policy: DependencyPolicy,
        now: float,
        *,
        workers: int = 1,
        start: float | None = None,
        at_rest: float | None = None,
        dependency: Dependency = _SOMEBODY,
    ) -> None:
        self.policy = policy
        self.dependency = dependency  #: whom it guards
        self.slow_after = None if policy.breaker is None else policy.breaker.slow_after
        self.workers = max(1, workers)
        self.shared = Breaker()
        self.own = Breaker()
        self.ring = None if policy.breaker is None else Ring(policy.breaker)
        self.limiter = None if policy.limiter is None else Limiter(policy.limiter, now, start, at_rest)
        self.budget = None if policy.budget is None else Budget(policy.budget, now, workers=self.workers)
        self.calls = self.failures = 0  #: that have ended
        self._number = 0
        self._last_call: float | None = None

    def adopt(self, policy: DependencyPolicy, now: float) -> None:
        """Go by another policy from now on. Calls that are under way end as ever; what they tell is not held against it."""
        if policy == self.policy:
            return
        was, self.policy = self.policy, policy
        if policy.breaker != was.breaker:
            self.own = Breaker()
            self.slow_after = None if policy.breaker is None else policy.breaker.slow_after
            if self.ring is None or policy.breaker is None:
                self.ring = None if policy.breaker is None else Ring(policy.breaker)
            else:
                self.ring.adopt(policy.breaker)
        if self.limiter is None or policy.limiter is None:
            self.limiter = None if policy.limiter is None else Limiter(policy.limiter, now)
        else:
            self.limiter.adopt(policy.limiter)
        if self.budget is None or policy.budget is None:
            self.budget = None if policy.budget is None else Budget(policy.budget, now, workers=self.workers)
        else:
            self.budget.adopt(policy.budget, now)

    # -- before a call ------------------------------------------------------------------------------------------------
    def room(self, now: float) -> int:
        """How many calls may begin now. Trials of the shared breaker are not among them: the store lends those."""
        if self.shared.state is not _CLOSED:
            return 0
        if self.own.state is not _CLOSED:
            self._judge(now)
        room = UNLIMITED if self.limiter is None else self.limiter.room
        match self.own.state:
            case BreakerState.CLOSED:
                return room
            case BreakerState.OPEN:
                return 0
            case BreakerState.HALF_OPEN:
                return min(self.own.free_trials(_at(now)), max(1, room))

    def begin(self, now: float, *, paid: int = 0, trial: str | None = None) -> CallPermit:
        """Begin a call. The caller has checked `room` before, or holds a *trial* of the shared breaker."""
        self._last_call = now
        if self.limiter is not None:
            self.limiter.started(now)
        number = 0 if self.ring is None else self.ring.started(now)
        own = None if self.own.state is not _HALF_OPEN else self._own_trial(now)
        return CallPermit(self, number, now, paid, own, trial)

    def begin_many(self, now: float, calls: int) -> list[CallPermit]:
        """Begin *calls* first tries at once, as after most claims."""
        if self.own.state is _HALF_OPEN or self.slow_after is not None:  # each is told apart
            return [self.begin(now) for _ in range(calls)]
        self._last_call = now
        if self.limiter is not None:
            self.limiter.started(now, calls)
        number = 0 if self.ring is None else self.ring.started(now)
        return [CallPermit(self, number, now, 0, None) for _ in range(calls)]

    def _own_trial(self, now: float) -> str | None:
        if self.ring is None or self.shared.state is not _CLOSED:
            return None
        # One that is not answered within a cooldown gives its slot to the next.
        until = _at(now) + self.ring.policy.cooldown
        self._number += 1
        lent = take_trial(self.own, str(self._number), now=_at(now), until=until)
        if lent is None:
            return None
        self.own = lent
        return str(self._number)

    def hand_over(self, leave: CallPermit, now: float) -> CallPermit:
        """A handler marks its calls itself: the leave of its attempt is the first one's, with its place among those under
        way, what was paid for it and the trial that it may be. The attempt as a whole tells nothing any more."""
        number = leave.number
        if self.ring is not None:
            self.ring.ended(number, Outcome.UNCOUNTED, now)
            number = self.ring.started(now)
        leave.heir = CallPermit(self, number, now, leave.paid, leave.own_trial, leave.trial)
        return leave.heir

    def is_tripped(self, now: float) -> bool:
        """Whether the worker's own breaker is open."""
        self._judge(now)
        return self.own.state is BreakerState.OPEN

    # -- after a call -------------------------------------------------------------------------------------------------
    def answered(self, call: CallPermit, now: float) -> None:
        """A call went well. Nearly all do, and one more success among nothing but successes tells the limiter alone."""
        ring, budget, limiter = self.ring, self.budget, self.limiter
        is_calm = (ring is None or ring.is_calm) and call.own_trial is None
        if not is_calm or (budget is not None and budget.tokens < budget.capacity):
            self.end(call, outcome_of(None, now - call.began, self.slow_after), now)
            return
        self.calls += 1
        if limiter is not None:
            limiter.answered(now - call.began, now)

    def end(self, call: CallPermit, outcome: Outcome, now: float) -> None:
        call.outcome = outcome
        self.calls += 1
        if self.limiter is not None:
            self.limiter.ended(now - call.began, outcome, now)
        if outcome is _OK or outcome is _SLOW:
            if self.budget is not None:
                self.budget.succeeded(call.paid)
        elif outcome is _FAILED:
            self.failures += 1
        if self.ring is None:
            return
        self.ring.ended(call.number, outcome, now)
        if call.own_trial is not None:
            self.own = end_trial(self.own, call.own_trial, outcome) or self.own
        self._judge(now)

    def undo(self, call: CallPermit, now: float) -> None:
        """It is not made after all: as if it had never begun."""
        self.end(call, Outcome.UNCOUNTED, now)
        self.calls -= 1
        if call.paid and self.budget is not None:
            self.budget.succeeded(call.paid)

    # -- about once a second ------------------------------------------------------------------------------------------
    def vote(self, now: float) -> bool:
        """Whether this worker holds the dependency for broken. It goes to the store with the version of `shared`."""
        self._judge(now)
        return self.own.state is not _CLOSED

    def calls_it(self, now: float) -> bool:
        """Whether this worker counts among the callers."""
        recent = self._last_call is not None and now - self._last_call <= CALLER_SECONDS
        return recent or self.own.state is not _CLOSED

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
            if shared.state is _CLOSED:
                self._recover(now)

    def _judge(self, now: float) -> None:
        """Move the worker's own breaker on."""
        if self.ring is None or self.shared.state is not _CLOSED:
            return
        if self.own.state is _CLOSED and not self.ring.vote(now):
            return
        # No chance: a worker's own trials are too few to be a herd.
        moved = judge(self.own, self.ring.policy, votes=1, callers=1, now=_at(now), chance=0.5)
        if moved is None:
            return
        self.own = moved
        if moved.state is _CLOSED:
            self._recover(now)

    def _recover(self, now: float) -> None:
        if self.ring is not None:
            self.ring.clear()
        if self.limiter is not None:
            self.limiter.restart(1 / self.workers, now)


def _at(now: float) -> datetime:
    """A moment for the own breaker: it compares them among themselves only."""
    return _START + timedelta(seconds=now)
