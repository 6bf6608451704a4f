"""A worker's dealings with the dependencies its tasks call: a guard for each, and one talk with the store a second.

What a guard decides it decides from this worker's own calls, at once and without the store (`holdfast.domain.guard`).
Once a second the votes go to the store and the shared breakers come back; a worker that finds one has to change swaps it
by its version. When the store does not answer, the guards go on with what they know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.domain.breaker import (
    PROBE_AGAIN,
    Breaker,
    BreakerState,
    end_trial,
    forced,
    judge,
    minds_health,
    renew_trial,
    take_trial,
)
from holdfast.domain.guard import CallPermit, DependencyGuard
from holdfast.domain.job import Claimed, JobId, Lane, Session
from holdfast.domain.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.domain.moves import Kind
from holdfast.domain.outcome import Outcome, outcome_of
from holdfast.domain.verdict import Bury, Failure, Release, RetryAfter, Verdict
from holdfast.domain.wait_reasons import WaitReason
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import DependencyReport, DependencyState
from holdfast.errors import DependencyHeld, StoreError
from holdfast.logs import Log

log = Log("holdfast.worker")

#: The store is told and asked this often, and this often by a worker that calls nothing.
BEAT_EVERY, LOOK_EVERY = 1.0, 5.0
#: A trial is lent for this long, and renewed from its middle on: the slot of a worker that is killed is soon the next one's.
TRIAL_LOAN = timedelta(seconds=5)
#: It is renewed for the time that its call may take, and this much more.
TRIAL_MARGIN = timedelta(seconds=5)
#: The time of a call that has no timeout.
TRIAL_SPAN = timedelta(minutes=1)
#: A health check that takes longer is a bad one.
PROBE_SECONDS = 5.0
#: And a worker asks no more often than this.
PROBE_EVERY = 0.8 * PROBE_AGAIN.total_seconds()
#: How often a swap is tried again when somebody else was first.
SWAPS = 5
#: A retry is urgent when its job is of a high priority, or ends by its deadline within this time.
HURRY = timedelta(hours=1)
#: How many jobs are remembered as throttled.
MOST_REMEMBERED = 10_000
#: Answers that ask to be left alone for a while, if they say for how long.
ASKING = (429, 503)

_KINDS = {
    BreakerState.OPEN: Kind.breaker_opened,
    BreakerState.HALF_OPEN: Kind.breaker_half_open,
    BreakerState.CLOSED: Kind.breaker_closed,
}
_LOG_EVENTS = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_opened",
    BreakerState.CLOSED: "breaker.closed",
}


class _Lent(NamedTuple):
    """A trial that this worker has."""

    dependency: Dependency
    until: float  #: as the store knows it, by our own clock
    end: float  #: its call has ended by then, or nobody told us


class Dependencies:
    """The guards of one worker process."""

    def __init__(self, engine: Engine, ring: Callable[[], None]) -> None:
        """*ring*: a breaker has changed, and so what can be claimed."""
        self._engine, self._ring = engine, ring
        self._guards: dict[Dependency, DependencyGuard] = {}
        self._throttled: dict[JobId, None] = {}  #: jobs whose last attempt here was throttled: oldest first
        self._dependency_states: dict[Dependency, DependencyState] = {}
        self._heard_at = 0.0
        self._looked_at = -LOOK_EVERY
        self._trials = 0
        self._lent: dict[str, _Lent] = {}
        self._no_trial_before: dict[Dependency, float] = {}
        self._probed: dict[Dependency, tuple[float, bool]] = {}  #: when it was asked last, and its answer

    async def serve(self, dependencies: Collection[Dependency]) -> None:
        """Watch these from now on. What the other workers know of a new one is where this one begins."""
        new = [dependency for dependency in dependencies if dependency not in self._guards]
        if not new:
            return
        dependency_states = {
            state_of_dependency.dependency: state_of_dependency
            for state_of_dependency in await self._engine.store.dependency_states()
        }
        now = self._engine.clock.monotonic()
        for dependency in new:
            state_of_dependency = dependency_states.get(dependency)
            if state_of_dependency is None or not state_of_dependency.callers:
                self._guard(dependency)
                continue
            policy = self._engine.admission.dependency(dependency.name)
            self._guards[dependency] = DependencyGuard(
                policy,
                now,
                workers=state_of_dependency.callers + 1,
                start=state_of_dependency.limit / state_of_dependency.callers or None,
                at_rest=state_of_dependency.latency,
                dependency=dependency,
            )
        await self._hear(list(dependency_states.values()), move=False)

    def _guard(self, dependency: Dependency) -> DependencyGuard:
        guard = self._guards.get(dependency)
        if guard is None:
            policy, now = self._engine.admission.dependency(dependency.name), self._engine.clock.monotonic()
            guard = self._guards[dependency] = DependencyGuard(policy, now, dependency=dependency)
        return guard

    # -- before a claim ---------------------------------------------------------------------------------------------
    def room(self, dependency: Dependency) -> int:
        """How many calls may begin. Of an open breaker that fails fast: any number, for they will not be made; but none
        while it is half open and a trial is free, or the job that could be the trial would fail instead."""
        guard = self._guard(dependency)
        if guard.shared.state is not BreakerState.CLOSED and not self._holds(guard):
            half_open = guard.shared.state is BreakerState.HALF_OPEN
            return 0 if half_open and guard.shared.free_trials(self._store_now(dependency)) else 10_000
        return guard.room(self._engine.clock.monotonic())

    def wants_trial(self, dependency: Dependency) -> bool:
        guard, now = self._guard(dependency), self._engine.clock.monotonic()
        return (
            guard.shared.state is BreakerState.HALF_OPEN
            and now >= self._no_trial_before.get(dependency, 0.0)
            and guard.shared.free_trials(self._store_now(dependency)) > 0
        )

    def _holds(self, guard: DependencyGuard) -> bool:
        return guard.policy.breaker is None or guard.policy.breaker.mode == "hold"

    async def take_trial(self, dependency: Dependency, span: timedelta = TRIAL_SPAN) -> str | None:
        """A slot of the half-open breaker, for one call that may take *span*; the name it is lent under."""
        guard = self._guard(dependency)
        self._trials += 1
        holder = f"{self._engine.ids.worker_name()}/{self._trials}"
        for _ in range(SWAPS):
            now, began = self._store_now(dependency), self._engine.clock.monotonic()
            lent = take_trial(guard.shared, holder, now=now, until=now + TRIAL_LOAN)
            if lent is None:
                return None
            if await self._swap(dependency, lent):
                end = began + (span + TRIAL_MARGIN).total_seconds()
                self._lent[holder] = _Lent(dependency, began + TRIAL_LOAN.total_seconds(), end)
                return holder
            await self.look()
        return None

    async def return_trial(self, dependency: Dependency, holder: str) -> None:
        """Nothing was there to try: the next may have the slot, and this worker does not ask again at once."""
        self._no_trial_before[dependency] = self._engine.clock.monotonic() + BEAT_EVERY
        await self._end_trial(dependency, holder, Outcome.UNCOUNTED)

    # -- around a call ----------------------------------------------------------------------------------------------
    def enter(
        self, dependency: Dependency, claimed: Sequence[Claimed], trial: str | None = None
    ) -> list[CallPermit | Verdict]:
        """For each job leave for a call, or what becomes of it instead."""
        guard, now = self._guard(dependency), self._engine.clock.monotonic()
        refused = None if trial is not None else self._refused(dependency, guard)
        if refused is not None:
            return [refused] * len(claimed)
        if trial is not None:
            return [guard.begin(now, trial=trial) for _ in claimed]
        if guard.budget is not None and [one for one in claimed if one.attempt > 1]:
            return [
                guard.begin(now) if one.attempt == 1 else self._pay(dependency, guard, one, now)
                for one in claimed
            ]
        return [*guard.begin_many(now, len(claimed))]

    def _pay(
        self, dependency: Dependency, guard: DependencyGuard, claimed: Claimed, now: float
    ) -> CallPermit | Verdict:
        """Leave for a retry, if the budget has it."""
        assert guard.budget is not None
        policy = guard.budget.policy
        paid = policy.throttled_cost if claimed.lease.job_id in self._throttled else policy.cost
        in_a_hurry = claimed.until_deadline is not None and claimed.until_deadline < HURRY
        if not guard.budget.take(paid, now, urgent=in_a_hurry or claimed.priority > 0):
            wait = guard.budget.wait(self._engine.rng.random())
            reason = f"the retry budget of {dependency.label} is used up"
            return Release(wait, reason, wait_reason=WaitReason.RETRY_BUDGET)
        return guard.begin(now, paid=paid)

    def _refused(self, dependency: Dependency, guard: DependencyGuard) -> Verdict | None:
        """The breaker was found open after the claim: nothing is called, and no attempt is burnt."""
        if guard.shared.state is BreakerState.CLOSED:
            return None
        policy = guard.policy.breaker
        if policy is not None and policy.mode == "fail_fast":
            detail = f"the breaker of {dependency.label} is open"
            return Bury(Failure.held(policy.fail_code, detail, self._engine.codes))
        reason = f"the breaker of {dependency.label} is open"
        return Release(self.closed_for(dependency), reason, wait_reason=WaitReason.BREAKER_OPEN)

    def closed_for(self, dependency: Dependency) -> timedelta:
        """How long until the breaker lets calls be tried again, as far as is known."""
        guard = self._guard(dependency)
        policy, retry_at = guard.policy.breaker, guard.shared.retry_at
        if retry_at is None or policy is None:
            return timedelta(seconds=BEAT_EVERY)
        return max(retry_at - self._store_now(dependency), timedelta(seconds=BEAT_EVERY))

    def breaker_of(self, lane: Lane) -> str | None:
        """The state of the breaker that jobs of this lane depend on, as far as this worker has heard."""
        dependency = Dependency.of(lane)
        return None if dependency is None else str(self._guard(dependency).shared.state)

    def answered(self, call: CallPermit, now: float) -> None:
        """The call went well."""
        call.guard.answered(call, now)
        observers = self._engine.observers
        if observers.any:
            observers.called(call.guard.dependency, now - call.began)

    def failed(self, call: CallPermit, failure: Failure, now: float, *, job_id: JobId | None = None) -> None:
        guard, seconds = call.guard, now - call.began
        guard.end(call, outcome_of(failure, seconds, guard.slow_after), now)
        self._engine.observers.called(guard.dependency, seconds)
        if job_id is not None:
            self._remember(job_id, call.outcome)

    def _remember(self, job_id: JobId, outcome: Outcome) -> None:
        """A retry after throttling costs less; of one that ran elsewhere nobody here knows, and it costs the usual."""
        self._throttled.pop(job_id, None)
        if outcome is Outcome.THROTTLED:
            self._throttled[job_id] = None
            if len(self._throttled) > MOST_REMEMBERED:
                del self._throttled[next(iter(self._throttled))]

    def end_without_outcome(self, call: CallPermit, now: float) -> None:
        """The call was ended from outside."""
        call.guard.end(call, Outcome.UNCOUNTED, now)

    def undo(self, call: CallPermit) -> None:
        """The call will not be made after all."""
        call.guard.undo(call, self._engine.clock.monotonic())

    async def leave(self, call: CallPermit, failure: Failure | None) -> None:
        """`answered` or `failed`, and the trial it may have been, too."""
        now = self._engine.clock.monotonic()
        if failure is None:
            self.answered(call, now)
        else:
            self.failed(call, failure, now)
        if call.trial is not None:
            await self._end_trial(call.guard.dependency, call.trial, call.outcome)

    async def abandon(self, call: CallPermit) -> None:
        """`end_without_outcome`, and the trial is the next one's."""
        self.end_without_outcome(call, self._engine.clock.monotonic())
        if call.trial is not None:
            await self._end_trial(call.guard.dependency, call.trial, Outcome.UNCOUNTED)

    async def hold_back(self, lane: Lane, failure: Failure) -> None:
        """The service asked to be left alone for a while: everything that would call it waits, not this job only (E12)."""
        if failure.retry_after is None or failure.gateway_status not in ASKING:
            return
        dependency = Dependency.of(lane)
        scope = (
            Scope(ScopeKind.LANE, lane.label)
            if dependency is None
            else Scope(ScopeKind.DEPENDENCY, dependency.label)
        )
        span = min(failure.retry_after, self._engine.tasks[lane.task].policy.retry.max_retry_after)
        reason = f"it answered {failure.gateway_status} and asked for {span.total_seconds():.0f} s"
        try:
            await self._engine.store.hold(
                scope, Cause.RETRY_AFTER, span=span, reason=reason, by="retry-after"
            )
        except StoreError as error:
            log.warning("hold.failed", scope=str(scope), reason=str(error))

    # -- calls that a handler marks itself --------------------------------------------------------------------------
    async def enter_call(self, dependency: Dependency, given: CallPermit | None) -> CallPermit:
        """*given* is the leave of the attempt: the first call of that dependency takes it over."""
        guard, trial = self._guard(dependency), None
        is_trial = (
            given is not None and given.guard is guard and given.heir is None and given.trial is not None
        )
        if guard.shared.state is BreakerState.HALF_OPEN and not is_trial:
            trial = await self._try_trial(dependency)
        now = self._engine.clock.monotonic()
        if given is None or given.guard is not guard or given.heir is not None:
            call = None
        else:
            call = guard.hand_over(given, now)
            call.trial = trial = call.trial or trial
        if trial is None and (guard.shared.state is not BreakerState.CLOSED or guard.is_tripped(now)):
            if call is not None:
                self.end_without_outcome(call, now)
            raise DependencyHeld(dependency.label, self.closed_for(dependency))
        return call or guard.begin(now, trial=trial)

    async def _try_trial(self, dependency: Dependency) -> str | None:
        """A slot, unless the store cannot be asked for it: the call is held then, and no attempt is burnt."""
        try:
            return await self.take_trial(dependency)
        except StoreError as error:
            log.info("trial.not_granted", dependency=dependency.label, reason=str(error))
            return None

    async def leave_call(self, call: CallPermit, error: BaseException | None, task: str) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self.abandon(call)
            return
        failure = None if error is None else self._engine.failure_of(error, task)
        await self.leave(call, failure)

    # -- about once a second ----------------------------------------------------------------------------------------
    async def tend(self, session: Session) -> None:
        """Tell the store what was seen, hear what others saw, and move breakers on whose time has come."""
        now = self._engine.clock.monotonic()
        for dependency, guard in self._guards.items():
            guard.adopt(self._engine.admission.dependency(dependency.name), now)
        reports = [
            self._report(dependency, guard, now)
            for dependency, guard in self._guards.items()
            if guard.calls_it(now) or guard.shared.state is not BreakerState.CLOSED
        ]
        if reports:
            await self._hear(await self._engine.store.report(session, reports))
        elif self._guards and now >= self._looked_at + LOOK_EVERY:
            self._looked_at = now
            await self._hear(await self._engine.store.dependency_states())
        for holder, lent in list(self._lent.items()):
            if now > lent.until - TRIAL_LOAN.total_seconds() / 2:
                await self._renew(holder, lent)

    async def _renew(self, holder: str, lent: _Lent) -> None:
        """Renew at most once a beat: a swap in between is seen by the next one."""
        now = self._engine.clock.monotonic()
        until = self._store_now(lent.dependency) + TRIAL_LOAN
        renewed = renew_trial(self._guard(lent.dependency).shared, holder, until=until)
        if renewed is None or now > lent.end:
            self._lent.pop(holder, None)
        elif await self._swap(lent.dependency, renewed) and holder in self._lent:
            self._lent[holder] = lent._replace(until=now + TRIAL_LOAN.total_seconds())

    def _report(self, dependency: Dependency, guard: DependencyGuard, now: float) -> DependencyReport:
        limiter = guard.limiter
        return DependencyReport(
            dependency,
            guard.shared.version,
            guard.vote(now),
            limit=0 if limiter is None else limiter.limit,
            in_flight=0 if limiter is None else limiter.in_flight,
            latency=None if limiter is None else limiter.at_rest,
            calls=guard.calls,
            failures=guard.failures,
        )

    async def look(self) -> None:
        """Hear what the store knows of the dependencies, and change nothing there."""
        await self._hear(await self._engine.store.dependency_states(), move=False)

    async def _hear(self, dependency_states: list[DependencyState], *, move: bool = True) -> None:
        now = self._engine.clock.monotonic()
        self._heard_at = now
        for state_of_dependency in dependency_states:
            guard = self._guards.get(state_of_dependency.dependency)
            if guard is None:
                continue
            self._dependency_states[state_of_dependency.dependency] = state_of_dependency
            if state_of_dependency.breaker.version > guard.shared.version:
                self._ring()
            guard.hear(state_of_dependency.breaker, state_of_dependency.callers, now)
            if move:
                await self._judge(guard, state_of_dependency)

    async def _judge(self, guard: DependencyGuard, state_of_dependency: DependencyState) -> None:
        policy = guard.policy.breaker
        if policy is None:
            await self._let_go(state_of_dependency)
            return
        healthy = None
        if minds_health(state_of_dependency.breaker, policy, state_of_dependency.now):
            healthy = await self._probe(state_of_dependency.dependency)
        moved = judge(
            state_of_dependency.breaker,
            policy,
            votes=state_of_dependency.votes,
            callers=state_of_dependency.callers,
            now=state_of_dependency.now,
            chance=self._engine.rng.random(),
            healthy=healthy,
        )
        if moved is not None:
            await self._swap(
                state_of_dependency.dependency,
                moved,
                votes=state_of_dependency.votes,
                callers=state_of_dependency.callers,
            )

    async def _let_go(self, state_of_dependency: DependencyState) -> None:
        """It has no breaker any more, or was opened by hand without ever having one: it ends without trials, in its time."""
        breaker, now = state_of_dependency.breaker, state_of_dependency.now
        is_over = breaker.retry_at is None or now >= breaker.retry_at
        if breaker.state is not BreakerState.CLOSED and is_over:
            await self._swap(state_of_dependency.dependency, forced(breaker, now=now, open_until=None))

    async def _probe(self, dependency: Dependency) -> bool | None:
        """What the health check says, where there is one; one that fails or hangs says no. It is not asked at every beat: until
        it is asked again its answer holds."""
        probe = self._engine.admission.probes.get(dependency.name)
        if probe is None:
            return None
        now = self._engine.clock.monotonic()
        asked_at, answer = self._probed.get(dependency, (-PROBE_EVERY, False))
        if now < asked_at + PROBE_EVERY:
            return answer
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                answer = bool(await probe())
        except Exception as error:
            answer = False
            log.info("probe.failed", dependency=dependency.label, reason=f"{type(error).__name__}: {error}")
        self._probed[dependency] = now, answer
        return answer

    async def _swap(self, dependency: Dependency, breaker: Breaker, **facts: int) -> bool:
        """Compare-and-set; what was set is heard at once."""
        guard = self._guard(dependency)
        turned = breaker.state is not guard.shared.state
        kind = _KINDS[breaker.state] if turned else None
        meta = dict(facts) | ({"reopens": breaker.reopens} if breaker.reopens else {})
        holds = breaker.state is not BreakerState.CLOSED and self._holds(guard)
        swapped = await self._engine.store.swap_breaker(
            dependency, breaker, holds=holds, kind=kind, meta=meta
        )
        if swapped:
            guard.hear(breaker, guard.workers, self._engine.clock.monotonic())
            if turned:
                log.warning(_LOG_EVENTS[breaker.state], dependency=dependency.label, **meta)
                self._ring()
        return swapped

    async def _end_trial(self, dependency: Dependency, holder: str, outcome: Outcome) -> None:
        guard = self._guard(dependency)
        self._lent.pop(holder, None)
        try:
            for _ in range(SWAPS):
                ended = end_trial(guard.shared, holder, outcome)
                if ended is None:
                    return  # it was lent to somebody else, or has been decided without us
                if await self._swap(dependency, ended):
                    state_of_dependency = self._dependency_states.get(dependency)
                    if state_of_dependency is not None:
                        told = {
                            "votes": 0,
                            "callers": state_of_dependency.callers,
                            "chance": self._engine.rng.random(),
                        }
                        policy = guard.policy.breaker
                        moved = policy and judge(ended, policy, now=self._store_now(dependency), **told)  # type: ignore[arg-type]
                        if moved:
                            await self._swap(dependency, moved)
                    return
                await self.look()
        except StoreError as error:
            log.warning(
                "trial.not_ended", dependency=dependency.label, reason=str(error)
            )  # it runs out by itself

    def _store_now(self, dependency: Dependency) -> datetime:
        """The store's clock, as it was last heard, and by our own since then."""
        state_of_dependency = self._dependency_states.get(dependency)
        if state_of_dependency is None:
            return self._engine.clock.now()
        return state_of_dependency.now + timedelta(seconds=self._engine.clock.monotonic() - self._heard_at)


def after_trial(verdict: Verdict | None, outcome: Outcome, dependency: Dependency) -> Verdict | None:
    """A job that was drafted for a trial which failed gets its attempt back and goes behind the others."""
    if outcome in (Outcome.FAILED, Outcome.SLOW) and isinstance(verdict, (RetryAfter, Bury)):
        reason = f"it was the trial call of {dependency.label}, which failed"
        return Release(timedelta(), reason, wait_reason=WaitReason.TRIAL_FAILED)
    return verdict
