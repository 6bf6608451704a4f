"""One worker's guard of one dependency: it decides whether calls may begin and learns from their outcomes.

It combines three mechanisms. The *limiter* says how many calls may be in progress. The *breaker* stops all
calls. There are two: the shared breaker in its last known state, and the worker's own, which is the same
state machine with a single voter. The own breaker acts at once, before other workers know, and alone when
only this worker has trouble: a bad node stops itself, not the fleet. While it is not closed, the worker votes
to open the shared one. The *budget* limits retries only.

A guard has state, but no I/O: time and chance come in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from holdfast.errors import UsageError
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    Ring,
    end_trial,
    judge,
    take_trial,
)
from holdfast.resilience.budget import Budget, BudgetPolicy
from holdfast.resilience.limiter import Limiter, LimiterPolicy
from holdfast.resilience.outcome import Outcome, outcome_of

#: The room without a limiter: more than any worker has slots.
UNLIMITED = 1_000_000
#: A worker counts as a caller of the dependency for this long after a call.
CALLER_SECONDS = 60.0
#: Module globals, because an enum lookup takes as long as the rest of the work for a successful call.
_OK, _SLOW, _FAILED = Outcome.OK, Outcome.SLOW, Outcome.FAILED
_CLOSED, _HALF_OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN
_UNNAMED = Dependency("")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """The permission for one call, until the call has ended."""

    guard: DependencyGuard
    number: int
    began: float  #: a caller that waits before the call may update it
    paid: int  #: tokens of the budget that a retry has paid; 0 for a first try
    own_trial: str | None  #: its trial slot of the worker's own breaker
    trial: str | None = None  #: its trial slot of the shared breaker
    successor: CallPermit | None = None  #: the permit to which `hand_over` has moved it
    outcome: Outcome = _OK  #: set when the call has ended


class DependencyGuard:
    """The guard of one dependency in one worker.

    In all methods *now* is seconds of the worker's monotonic clock. *workers* is the size of the fleet, this
    worker included.
    """

    def __init__(
        self,
        policy: DependencyPolicy,
        now: float,
        *,
        workers: int = 1,
        start: float | None = None,
        at_rest: float | None = None,
        dependency: Dependency = _UNNAMED,
    ) -> None:
        self.policy = policy
        self.dependency = dependency
        self.slow_after = None if policy.breaker is None else policy.breaker.slow_after
        self.workers = max(1, workers)
        self.shared = Breaker()
        self.own = Breaker()
        self.ring = None if policy.breaker is None else Ring(policy.breaker)
        self.limiter = None if policy.limiter is None else Limiter(policy.limiter, now, start, at_rest)
        self.budget = None if policy.budget is None else Budget(policy.budget, now, workers=self.workers)
        self.calls = self.failures = 0  #: ended calls, and failed ones among them
        self._number = 0
        self._last_call: float | None = None

    def adopt(self, policy: DependencyPolicy, now: float) -> None:
        """Switch to another policy. Running calls continue, but their outcomes do not count against it."""
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

    # -- before a call --------------------------------------------------------------------------------------
    def room(self, now: float) -> int:
        """Return how many calls may begin now, apart from trials of the shared breaker."""
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
        """Begin a call and return its permit.

        The caller has checked `room` before, or holds a *trial* of the shared breaker.
        """
        self._last_call = now
        if self.limiter is not None:
            self.limiter.started(now)
        number = 0 if self.ring is None else self.ring.started(now)
        own = None if self.own.state is not _HALF_OPEN else self._own_trial(now)
        return CallPermit(self, number, now, paid, own, trial)

    def begin_many(self, now: float, calls: int) -> list[CallPermit]:
        """Begin *calls* first tries at once, as after most claims, and return their permits."""
        if (
            self.own.state is _HALF_OPEN or self.slow_after is not None
        ):  # each call needs its own number or trial
            return [self.begin(now) for _ in range(calls)]
        self._last_call = now
        if self.limiter is not None:
            self.limiter.started(now, calls)
        number = 0 if self.ring is None else self.ring.started(now)
        return [CallPermit(self, number, now, 0, None) for _ in range(calls)]

    def _own_trial(self, now: float) -> str | None:
        if self.ring is None or self.shared.state is not _CLOSED:
            return None
        # A trial without an answer within a cooldown frees its slot.
        until = _at(now) + self.ring.policy.cooldown
        self._number += 1
        changed = take_trial(self.own, str(self._number), now=_at(now), until=until)
        if changed is None:
            return None
        self.own = changed
        return str(self._number)

    def hand_over(self, permit: CallPermit, now: float) -> CallPermit:
        """Move the permit of an attempt to the first call that its handler marks itself, and return it.

        The call takes over the place in the limiter, the paid tokens and the trial. The attempt as a whole no
        longer counts as a call.
        """
        number = permit.number
        if self.ring is not None:
            self.ring.ended(number, Outcome.UNCOUNTED, now)
            number = self.ring.started(now)
        permit.successor = CallPermit(self, number, now, permit.paid, permit.own_trial, permit.trial)
        return permit.successor

    def is_tripped(self, now: float) -> bool:
        """Return whether the worker's own breaker is open."""
        self._judge(now)
        return self.own.state is BreakerState.OPEN

    # -- after a call ---------------------------------------------------------------------------------------
    def answered(self, call: CallPermit, now: float) -> None:
        """End a call that succeeded. While all recent calls succeeded, only the limiter needs to know."""
        ring, budget, limiter = self.ring, self.budget, self.limiter
        is_all_ok = (ring is None or ring.is_all_ok) and call.own_trial is None
        if not is_all_ok or (budget is not None and budget.tokens < budget.capacity):
            self.end(call, outcome_of(None, now - call.began, self.slow_after), now)
            return
        self.calls += 1
        if limiter is not None:
            limiter.answered(now - call.began, now)

    def end(self, call: CallPermit, outcome: Outcome, now: float) -> None:
        """End a call and learn from its *outcome*."""
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
        """Undo `begin` for a call that is not made after all."""
        self.end(call, Outcome.UNCOUNTED, now)
        self.calls -= 1
        if call.paid and self.budget is not None:
            self.budget.succeeded(call.paid)

    # -- about once a second --------------------------------------------------------------------------------
    def vote(self, now: float) -> bool:
        """Return this worker's vote on the current version of `shared`: whether the dependency is broken."""
        self._judge(now)
        return self.own.state is not _CLOSED

    def is_caller(self, now: float) -> bool:
        """Return whether this worker counts as a caller of the dependency."""
        recent = self._last_call is not None and now - self._last_call <= CALLER_SECONDS
        return recent or self.own.state is not _CLOSED

    def update_shared(self, shared: Breaker, workers: int, now: float) -> None:
        """Take over the shared breaker and the size of the fleet from the store."""
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
        """Move the worker's own breaker to its next state, if it has one."""
        if self.ring is None or self.shared.state is not _CLOSED:
            return
        if self.own.state is _CLOSED and not self.ring.vote(now):
            return
        # A fixed chance: the few trials of one worker need not be spread.
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
    """Return *now* as a moment for the own breaker, which only compares such moments with each other."""
    return _EPOCH + timedelta(seconds=now)
