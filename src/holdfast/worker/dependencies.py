"""The dependencies that a worker's tasks call: a guard for each, and one exchange with the store a second.

A guard decides from this worker's own calls, at once and without the store (`holdfast.resilience.guard`).
Once a second the worker sends its votes to the store and receives the shared breakers. A worker that finds
that a breaker must change swaps it by its version. If the store does not answer, the guards go on with the
states they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.engine.engine import Engine
from holdfast.engine.lane_store import DependencyReport, DependencyState
from holdfast.engine.tables.dependencies import dependency_states, swap_breaker
from holdfast.errors import DependencyHeld, StoreError
from holdfast.jobs.job import Claimed, JobId, Lane, Session
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Bury, Failure, Release, RetryAfter, Verdict
from holdfast.logging import Log
from holdfast.resilience.breaker import (
    PROBE_AGAIN,
    Breaker,
    BreakerState,
    end_trial,
    forced,
    heeds_health_check,
    judge,
    renew_trial,
    take_trial,
)
from holdfast.resilience.guard import CallPermit, DependencyGuard
from holdfast.resilience.outcome import Outcome, outcome_of

log = Log("holdfast.worker")

#: Seconds between two exchanges with the store, and between two reads by a worker that calls nothing.
BEAT_EVERY, READ_EVERY = 1.0, 5.0
#: A trial slot is lent for this long and renewed from the middle on, so the slot of a killed worker is soon
#: free again.
TRIAL_LOAN = timedelta(seconds=5)
#: A trial slot is renewed for the time that its call may take, plus this margin.
TRIAL_MARGIN = timedelta(seconds=5)
#: How long a call without a timeout may take.
TRIAL_SPAN = timedelta(minutes=1)
#: A health check that takes longer counts as failed, in seconds.
PROBE_SECONDS = 5.0
#: The least seconds between two health checks of a dependency by one worker.
PROBE_EVERY = 0.8 * PROBE_AGAIN.total_seconds()
#: How many times a swap is tried when another worker was first.
SWAPS = 5
#: A retry is urgent if its job has a high priority, or its deadline ends within this time.
HURRY = timedelta(hours=1)
#: How many jobs are remembered as throttled.
MOST_REMEMBERED = 10_000
#: The HTTP statuses whose `Retry-After` holds back the whole dependency.
RETRY_AFTER_STATUSES = (429, 503)

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


class _TrialLoan(NamedTuple):
    """A trial slot that is lent to this worker."""

    dependency: Dependency
    until: float  #: when the loan ends in the store, by the local clock
    end: float  #: when its call must have ended; it is not renewed beyond that


class Dependencies:
    """The guards of one worker process."""

    def __init__(self, engine: Engine, wake: Callable[[], None]) -> None:
        """Call *wake* whenever a change of a breaker changes what can be claimed."""
        self._engine, self._wake = engine, wake
        self._guards: dict[Dependency, DependencyGuard] = {}
        self._throttled: dict[JobId, None] = {}  #: jobs whose last attempt here was throttled, oldest first
        self._states: dict[Dependency, DependencyState] = {}
        self._heard_at = 0.0
        self._read_at = -READ_EVERY
        self._trials = 0
        self._loans: dict[str, _TrialLoan] = {}
        self._no_trial_before: dict[Dependency, float] = {}
        self._probed: dict[Dependency, tuple[float, bool]] = {}  #: when each was checked last, and the result

    async def serve(self, dependencies: Collection[Dependency]) -> None:
        """Guard these *dependencies* from now on.

        A new guard starts with the state that other workers reported.
        """
        new = [dependency for dependency in dependencies if dependency not in self._guards]
        if not new:
            return
        states = {state.dependency: state for state in await dependency_states(self._engine.store)}
        now = self._engine.clock.monotonic()
        for dependency in new:
            state = states.get(dependency)
            if state is None or not state.callers:
                self._guard(dependency)
                continue
            policy = self._engine.admission.dependency(dependency.name)
            self._guards[dependency] = DependencyGuard(
                policy,
                now,
                workers=state.callers + 1,
                start=state.limit / state.callers or None,
                at_rest=state.latency,
                dependency=dependency,
            )
        await self._apply_states(list(states.values()), move=False)

    def _guard(self, dependency: Dependency) -> DependencyGuard:
        guard = self._guards.get(dependency)
        if guard is None:
            policy, now = self._engine.admission.dependency(dependency.name), self._engine.clock.monotonic()
            guard = self._guards[dependency] = DependencyGuard(policy, now, dependency=dependency)
        return guard

    # -- before a claim ---------------------------------------------------------------------------------------------
    def room(self, dependency: Dependency) -> int:
        """Return how many calls may begin.

        Behind a breaker that fails fast any number may, because the calls will not be made. But while it is
        half-open and a trial slot is free none may, or the job that could be the trial would fail instead.
        """
        guard = self._guard(dependency)
        if guard.shared.state is not BreakerState.CLOSED and not self._holds(guard):
            half_open = guard.shared.state is BreakerState.HALF_OPEN
            return 0 if half_open and guard.shared.free_trials(self._store_now(dependency)) else 10_000
        return guard.room(self._engine.clock.monotonic())

    def wants_trial(self, dependency: Dependency) -> bool:
        """Return whether this worker should claim a job as a trial call of a half-open breaker."""
        guard, now = self._guard(dependency), self._engine.clock.monotonic()
        return (
            guard.shared.state is BreakerState.HALF_OPEN
            and now >= self._no_trial_before.get(dependency, 0.0)
            and guard.shared.free_trials(self._store_now(dependency)) > 0
        )

    def _holds(self, guard: DependencyGuard) -> bool:
        return guard.policy.breaker is None or guard.policy.breaker.mode == "hold"

    async def take_trial(self, dependency: Dependency, span: timedelta = TRIAL_SPAN) -> str | None:
        """Take a trial slot of the half-open breaker for a call that may take *span*.

        Return the name under which the slot is lent, or None if none is free.
        """
        guard = self._guard(dependency)
        self._trials += 1
        holder = f"{self._engine.ids.worker_name()}/{self._trials}"
        for _ in range(SWAPS):
            now, began = self._store_now(dependency), self._engine.clock.monotonic()
            taken = take_trial(guard.shared, holder, now=now, until=now + TRIAL_LOAN)
            if taken is None:
                return None
            if await self._swap(dependency, taken):
                end = began + (span + TRIAL_MARGIN).total_seconds()
                self._loans[holder] = _TrialLoan(dependency, began + TRIAL_LOAN.total_seconds(), end)
                return holder
            await self.read_states()
        return None

    async def return_trial(self, dependency: Dependency, holder: str) -> None:
        """Return a trial slot that no job needed.

        This worker does not take one again before `BEAT_EVERY` seconds.
        """
        self._no_trial_before[dependency] = self._engine.clock.monotonic() + BEAT_EVERY
        await self._end_trial(dependency, holder, Outcome.UNCOUNTED)

    # -- around a call ----------------------------------------------------------------------------------------------
    def enter(
        self, dependency: Dependency, claimed: Sequence[Claimed], trial: str | None = None
    ) -> list[CallPermit | Verdict]:
        """Return for each job a permit to call the dependency, or the verdict for it instead."""
        guard, now = self._guard(dependency), self._engine.clock.monotonic()
        refused = None if trial is not None else self._refused(dependency, guard)
        if refused is not None:
            return [refused] * len(claimed)
        if trial is not None:
            return [guard.begin(now, trial=trial) for _ in claimed]
        if guard.budget is not None and [one for one in claimed if one.attempt > 1]:
            return [
                guard.begin(now) if one.attempt == 1 else self._pay_for_retry(dependency, guard, one, now)
                for one in claimed
            ]
        return [*guard.begin_many(now, len(claimed))]

    def _pay_for_retry(
        self, dependency: Dependency, guard: DependencyGuard, claimed: Claimed, now: float
    ) -> CallPermit | Verdict:
        """Return a permit for a retry if the retry budget allows it, else the verdict for the job."""
        assert guard.budget is not None
        policy = guard.budget.policy
        cost = policy.throttled_cost if claimed.lease.job_id in self._throttled else policy.cost
        in_a_hurry = claimed.until_deadline is not None and claimed.until_deadline < HURRY
        if not guard.budget.take(cost, now, urgent=in_a_hurry or claimed.priority > 0):
            wait = guard.budget.wait(self._engine.rng.random())
            reason = f"the retry budget of {dependency.label} is used up"
            return Release(wait, reason, wait_reason=WaitReason.RETRY_BUDGET)
        return guard.begin(now, paid=cost)

    def _refused(self, dependency: Dependency, guard: DependencyGuard) -> Verdict | None:
        """Return the verdict for claimed jobs whose breaker turned out to be open, or None if it is closed.

        No call is made and no attempt is used up.
        """
        if guard.shared.state is BreakerState.CLOSED:
            return None
        policy = guard.policy.breaker
        if policy is not None and policy.mode == "fail_fast":
            detail = f"the breaker of {dependency.label} is open"
            return Bury(Failure.held(policy.fail_code, detail, self._engine.codes))
        reason = f"the breaker of {dependency.label} is open"
        return Release(self.held_for(dependency), reason, wait_reason=WaitReason.BREAKER_OPEN)

    def held_for(self, dependency: Dependency) -> timedelta:
        """Return how long the breaker still holds calls back, as far as this worker knows."""
        guard = self._guard(dependency)
        policy, retry_at = guard.policy.breaker, guard.shared.retry_at
        if retry_at is None or policy is None:
            return timedelta(seconds=BEAT_EVERY)
        return max(retry_at - self._store_now(dependency), timedelta(seconds=BEAT_EVERY))

    def breaker_of(self, lane: Lane) -> str | None:
        """Return the last known breaker state of the lane's dependency, or None if it has no dependency."""
        dependency = Dependency.of(lane)
        return None if dependency is None else str(self._guard(dependency).shared.state)

    def answered(self, call: CallPermit, now: float) -> None:
        """Record that the call succeeded."""
        call.guard.answered(call, now)
        observers = self._engine.observers
        if observers.any:
            observers.called(call.guard.dependency, now - call.began)

    def failed(self, call: CallPermit, failure: Failure, now: float, *, job_id: JobId | None = None) -> None:
        """Record that the call ended with *failure*.

        *job_id* is the job whose retry is cheaper after throttling.
        """
        guard, seconds = call.guard, now - call.began
        guard.end(call, outcome_of(failure, seconds, guard.slow_after), now)
        self._engine.observers.called(guard.dependency, seconds)
        if job_id is not None:
            self._remember(job_id, call.outcome)

    def _remember(self, job_id: JobId, outcome: Outcome) -> None:
        """Remember whether the job was throttled, which makes its retry cheaper.

        A retry on another worker costs the usual.
        """
        self._throttled.pop(job_id, None)
        if outcome is Outcome.THROTTLED:
            self._throttled[job_id] = None
            if len(self._throttled) > MOST_REMEMBERED:
                del self._throttled[next(iter(self._throttled))]

    def end_without_outcome(self, call: CallPermit, now: float) -> None:
        """Record that the call was ended from outside: it counts neither for nor against the dependency."""
        call.guard.end(call, Outcome.UNCOUNTED, now)

    def undo(self, call: CallPermit) -> None:
        """Take back a permit whose call is not made."""
        call.guard.undo(call, self._engine.clock.monotonic())

    async def leave(self, call: CallPermit, failure: Failure | None) -> None:
        """Record the outcome of a call and end its trial, if it was one.

        *failure* is None if it succeeded.
        """
        now = self._engine.clock.monotonic()
        if failure is None:
            self.answered(call, now)
        else:
            self.failed(call, failure, now)
        if call.trial is not None:
            await self._end_trial(call.guard.dependency, call.trial, call.outcome)

    async def abandon(self, call: CallPermit) -> None:
        """Record that the call was ended from outside, and return its trial slot, if it had one."""
        self.end_without_outcome(call, self._engine.clock.monotonic())
        if call.trial is not None:
            await self._end_trial(call.guard.dependency, call.trial, Outcome.UNCOUNTED)

    async def hold_back(self, lane: Lane, failure: Failure) -> None:
        """Hold the whole dependency, or else the lane, for the time that `Retry-After` asked for (E12)."""
        if failure.retry_after is None or failure.gateway_status not in RETRY_AFTER_STATUSES:
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
            await self._engine.store.lanes.hold(
                scope, Cause.RETRY_AFTER, span=span, reason=reason, by="retry-after"
            )
        except StoreError as error:
            log.warning("hold.failed", scope=str(scope), reason=str(error))

    # -- calls that a handler marks itself --------------------------------------------------------------------------
    async def enter_call(self, dependency: Dependency, given: CallPermit | None) -> CallPermit:
        """Begin a call that a handler marks itself, and return its permit.

        *given* is the permit of the attempt. The first marked call of the same dependency takes it over.

        Raises:
            DependencyHeld: The breaker is open.
        """
        guard, trial = self._guard(dependency), None
        is_trial = (
            given is not None and given.guard is guard and given.successor is None and given.trial is not None
        )
        if guard.shared.state is BreakerState.HALF_OPEN and not is_trial:
            trial = await self._take_trial_if_possible(dependency)
        now = self._engine.clock.monotonic()
        if given is None or given.guard is not guard or given.successor is not None:
            call = None
        else:
            call = guard.hand_over(given, now)
            call.trial = trial = call.trial or trial
        if trial is None and (guard.shared.state is not BreakerState.CLOSED or guard.is_tripped(now)):
            if call is not None:
                self.end_without_outcome(call, now)
            raise DependencyHeld(dependency.label, self.held_for(dependency))
        return call or guard.begin(now, trial=trial)

    async def _take_trial_if_possible(self, dependency: Dependency) -> str | None:
        """Take a trial slot.

        Return None if none is free or the store does not answer: the call is held then.
        """
        try:
            return await self.take_trial(dependency)
        except StoreError as error:
            log.info("trial.not_granted", dependency=dependency.label, reason=str(error))
            return None

    async def leave_call(self, call: CallPermit, error: BaseException | None, task: str) -> None:
        """End a call that a handler of *task* marked itself.

        *error* is what its block raised, if anything.
        """
        if isinstance(error, asyncio.CancelledError):
            await self.abandon(call)
            return
        failure = None if error is None else self._engine.failure_of(error, task)
        await self.leave(call, failure)

    # -- the exchange with the store --------------------------------------------------------------------------------
    async def sync(self, session: Session) -> None:
        """Exchange votes and states with the store, move the breakers that are due, and renew trial slots."""
        now = self._engine.clock.monotonic()
        for dependency, guard in self._guards.items():
            guard.adopt(self._engine.admission.dependency(dependency.name), now)
        reports = [
            self._report(dependency, guard, now)
            for dependency, guard in self._guards.items()
            if guard.is_caller(now) or guard.shared.state is not BreakerState.CLOSED
        ]
        if reports:
            await self._apply_states(await self._engine.store.lanes.report(session, reports))
        elif self._guards and now >= self._read_at + READ_EVERY:
            self._read_at = now
            await self._apply_states(await dependency_states(self._engine.store))
        for holder, loan in list(self._loans.items()):
            if now > loan.until - TRIAL_LOAN.total_seconds() / 2:
                await self._renew(holder, loan)

    async def _renew(self, holder: str, loan: _TrialLoan) -> None:
        """Renew a loan with one swap. If another worker swaps in between, the next exchange renews it."""
        now = self._engine.clock.monotonic()
        until = self._store_now(loan.dependency) + TRIAL_LOAN
        renewed = renew_trial(self._guard(loan.dependency).shared, holder, until=until)
        if renewed is None or now > loan.end:
            self._loans.pop(holder, None)
        elif await self._swap(loan.dependency, renewed) and holder in self._loans:
            self._loans[holder] = loan._replace(until=now + TRIAL_LOAN.total_seconds())

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

    async def read_states(self) -> None:
        """Read the states of the dependencies from the store without changing any breaker."""
        await self._apply_states(await dependency_states(self._engine.store), move=False)

    async def _apply_states(self, states: list[DependencyState], *, move: bool = True) -> None:
        now = self._engine.clock.monotonic()
        self._heard_at = now
        for state in states:
            guard = self._guards.get(state.dependency)
            if guard is None:
                continue
            self._states[state.dependency] = state
            if state.breaker.version > guard.shared.version:
                self._wake()
            guard.update_shared(state.breaker, state.callers, now)
            if move:
                await self._judge(guard, state)

    async def _judge(self, guard: DependencyGuard, state: DependencyState) -> None:
        policy = guard.policy.breaker
        if policy is None:
            await self._close_without_policy(state)
            return
        healthy = None
        if heeds_health_check(state.breaker, policy, state.now):
            healthy = await self._probe(state.dependency)
        moved = judge(
            state.breaker,
            policy,
            votes=state.votes,
            callers=state.callers,
            now=state.now,
            chance=self._engine.rng.random(),
            healthy=healthy,
        )
        if moved is not None:
            await self._swap(
                state.dependency,
                moved,
                votes=state.votes,
                callers=state.callers,
            )

    async def _close_without_policy(self, state: DependencyState) -> None:
        """Close a due breaker without trials: it has no policy, because it was opened by hand or lost it."""
        breaker, now = state.breaker, state.now
        is_over = breaker.retry_at is None or now >= breaker.retry_at
        if breaker.state is not BreakerState.CLOSED and is_over:
            await self._swap(state.dependency, forced(breaker, now=now, open_until=None))

    async def _probe(self, dependency: Dependency) -> bool | None:
        """Return the result of the health check, or None if there is none.

        A check that raises or times out counts as False. A result is reused for `PROBE_EVERY` seconds.
        """
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
        """Replace the breaker in the store by compare-and-swap and, if that worked, in the guard.

        Return whether it did.
        """
        guard = self._guard(dependency)
        turned = breaker.state is not guard.shared.state
        kind = _KINDS[breaker.state] if turned else None
        meta = dict(facts) | ({"reopens": breaker.reopens} if breaker.reopens else {})
        holds = breaker.state is not BreakerState.CLOSED and self._holds(guard)
        swapped = await swap_breaker(
            self._engine.store, dependency, breaker, holds=holds, kind=kind, meta=meta
        )
        if swapped:
            guard.update_shared(breaker, guard.workers, self._engine.clock.monotonic())
            if turned:
                log.warning(_LOG_EVENTS[breaker.state], dependency=dependency.label, **meta)
                self._wake()
        return swapped

    async def _end_trial(self, dependency: Dependency, holder: str, outcome: Outcome) -> None:
        guard = self._guard(dependency)
        self._loans.pop(holder, None)
        try:
            for _ in range(SWAPS):
                ended = end_trial(guard.shared, holder, outcome)
                if ended is None:
                    return  # the slot was lent to another worker, or the breaker moved on without this trial
                if await self._swap(dependency, ended):
                    state = self._states.get(dependency)
                    if state is not None:
                        policy = guard.policy.breaker
                        moved = policy and judge(
                            ended,
                            policy,
                            votes=0,
                            callers=state.callers,
                            now=self._store_now(dependency),
                            chance=self._engine.rng.random(),
                        )
                        if moved:
                            await self._swap(dependency, moved)
                    return
                await self.read_states()
        except StoreError as error:
            # The loan expires by itself.
            log.warning("trial.not_ended", dependency=dependency.label, reason=str(error))

    def _store_now(self, dependency: Dependency) -> datetime:
        """Return the store's time: as last heard, plus the time since then by the local clock."""
        state = self._states.get(dependency)
        if state is None:
            return self._engine.clock.now()
        return state.now + timedelta(seconds=self._engine.clock.monotonic() - self._heard_at)


def after_trial(verdict: Verdict | None, outcome: Outcome, dependency: Dependency) -> Verdict | None:
    """Return the verdict for a job that was a trial call: if the trial failed, its job is released."""
    if outcome in (Outcome.FAILED, Outcome.SLOW) and isinstance(verdict, (RetryAfter, Bury)):
        reason = f"it was the trial call of {dependency.label}, which failed"
        return Release(timedelta(), reason, wait_reason=WaitReason.TRIAL_FAILED)
    return verdict
