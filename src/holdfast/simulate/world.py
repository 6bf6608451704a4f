"""The simulation: jobs arrive, workers call, a service answers or fails.

`holdfast.resilience` makes all decisions. A shared breaker, the votes, a hold and a queue of jobs stand for
the store. As in production, workers see the shared state only when they flush, once a second, each at its own
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.machine import Rng
from holdfast.jobs.verdict import Failure, RetryAfter
from holdfast.resilience.breaker import Breaker, BreakerState, end_trial, judge, take_trial
from holdfast.resilience.guard import CallPermit, DependencyGuard
from holdfast.resilience.outcome import Outcome, outcome_of
from holdfast.resilience.policy import judge_failure
from holdfast.simulate.figures import Figures, Recorder
from holdfast.simulate.policies import SimulatedPolicy
from holdfast.simulate.scenarios import Scenario, Trouble
from holdfast.simulate.service import Service, ServiceRequest

TIMED_OUT = Failure.of("CALL_TIMEOUT")
FLUSH_SECONDS = 1.0
#: A trial slot is reserved for the timeout of the call plus these seconds.
TRIAL_GRACE = 5.0
_START = datetime(2026, 1, 1, tzinfo=UTC)


def simulate(scenario: Scenario, policy: SimulatedPolicy, rng: Rng) -> Figures:
    """Run *policy* through *scenario* and return the results."""
    return World(scenario, policy, rng).run()


@dataclass(slots=True)
class SimulatedJob:
    """A job, with what its retries depend on."""

    poison: bool = False
    attempt: int = 0  #: counted at the claim and given back by a release, as in production
    calls: int = 0  #: without failed trials, which do not count
    failed_as: ErrorClass | None = None
    delay: timedelta = timedelta()


class Vote(NamedTuple):
    """What a worker last reported about the dependency."""

    broken: bool
    version: int  #: of the shared breaker as this worker knew it
    is_caller: bool


class SimulatedWorker:
    """A worker with its guard and free slots."""

    def __init__(self, number: int, guard: DependencyGuard, slots: int) -> None:
        self.number, self.guard, self.free = number, guard, slots
        self.held_until = -inf  #: the end of a Retry-After that it knows of


class SimulatedAttempt(ServiceRequest):
    """One call of one job."""

    __slots__ = ("call", "deadline", "ended", "holder", "job", "worker")

    def __init__(
        self,
        job: SimulatedJob,
        worker: SimulatedWorker,
        call: CallPermit,
        deadline: float,
        holder: str | None,
    ) -> None:
        super().__init__(worker.number, job.poison)
        self.job, self.worker, self.call = job, worker, call
        self.deadline, self.holder = deadline, holder
        self.ended = False


class World:
    """The state of one simulation. Time is `now`, in seconds."""

    def __init__(self, scenario: Scenario, policy: SimulatedPolicy, rng: Rng) -> None:
        self.scenario, self.policy = scenario, policy
        self.now = 0.0
        self.recorder = Recorder(scenario.seconds)
        self._chance = rng.random
        self._agenda: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = 0
        self._ready: deque[SimulatedJob] = deque()
        #: in the order of their deadlines, because all calls have the same timeout
        self._running: deque[SimulatedAttempt] = deque()
        self._turn = 0
        self._shared = Breaker()
        self._votes: dict[int, Vote] = {}
        self._held_until = -inf
        self._trials = 0
        self._service = Service[SimulatedAttempt](scenario, self._later, rng.random, self._end)
        guard = partial(DependencyGuard, policy.dependency, 0.0, workers=scenario.workers)
        self._workers = [
            SimulatedWorker(number, guard(), scenario.slots) for number in range(scenario.workers)
        ]

    def run(self) -> Figures:
        """Run the simulation to its end and return the results."""
        for worker in self._workers:
            self._later(worker.number / len(self._workers) * FLUSH_SECONDS, self._flush, worker)
        agenda, running, end = self._agenda, self._running, self.scenario.seconds
        spread = 2 / self.scenario.arrivals
        arrival = self._chance() * spread
        while True:
            while running and running[0].ended:
                running.popleft()
            planned = agenda[0][0] if agenda else inf
            deadline = running[0].deadline if running else inf
            if min(arrival, planned, deadline) >= end:
                break
            if planned <= arrival and planned <= deadline:
                self.now, _, act, value = heappop(agenda)
                act(value)
            elif arrival <= deadline:
                self.now = arrival
                self._arrive()
                arrival += self._chance() * spread
            else:
                self.now = deadline
                self._end(running.popleft(), TIMED_OUT)
        return self.recorder.figures(self.scenario, self.policy)

    # -- time -----------------------------------------------------------------------------------------------
    def _later(self, seconds: float, act: Callable[[Any], None], value: Any) -> None:
        self._order += 1
        heappush(self._agenda, (self.now + seconds, self._order, act, value))

    def _moment(self) -> datetime:
        """Return the time of the store's clock."""
        return _START + timedelta(seconds=self.now)

    # -- jobs -----------------------------------------------------------------------------------------------
    def _arrive(self) -> None:
        scenario = self.scenario
        in_trouble = scenario.begins <= self.now < scenario.ends
        poison = scenario.trouble is Trouble.POISON and in_trouble and self._chance() < scenario.amount
        self.recorder.arrived(self.now, poison=poison)
        self._queue(SimulatedJob(poison))

    def _queue(self, job: SimulatedJob) -> None:
        self._ready.append(job)
        if len(self._ready) > 1:
            return  # no worker had room for the jobs before it; a flush tries again
        self._turn += 1
        for place in range(len(self._workers)):
            if not self._ready:
                return
            self._fill(self._workers[(self._turn + place) % len(self._workers)])

    def _fill(self, worker: SimulatedWorker) -> None:
        """Let *worker* claim as many jobs as it has room for."""
        if not self._ready or not worker.free or worker.held_until > self.now or self._closed_window():
            return
        room = min(worker.free, worker.guard.room(self.now))
        while room > 0 and self._ready:
            job = self._ready.popleft()
            job.attempt += 1
            paid = self._pay(worker, job)
            if paid is None:
                continue
            self._call(job, worker, paid)
            room -= 1

    def _closed_window(self) -> bool:
        return self.scenario.trouble is Trouble.WAITING and self.now < self.scenario.ends

    def _pay(self, worker: SimulatedWorker, job: SimulatedJob) -> int | None:
        """Return what the retry of *job* has paid, or None if the budget refused it and it was put off."""
        budget = worker.guard.budget
        if budget is None or job.failed_as is None:
            return 0
        cost = budget.policy.cost_of(job.failed_as)
        if budget.take(cost, self.now):
            return cost
        job.attempt -= 1  # released: the attempt does not count
        self.recorder.put_off += 1
        self._later(budget.wait(self._chance()).total_seconds(), self._queue, job)
        return None

    # -- calls ----------------------------------------------------------------------------------------------
    def _call(self, job: SimulatedJob, worker: SimulatedWorker, paid: int, holder: str | None = None) -> None:
        worker.free -= 1
        job.calls += 1
        self.recorder.called(self.now)
        call = worker.guard.begin(self.now, paid=paid)
        attempt = SimulatedAttempt(job, worker, call, self.now + self.scenario.timeout_seconds, holder)
        self._running.append(attempt)
        self._service.ask(attempt, self.now)

    def _end(self, attempt: SimulatedAttempt, failure: Failure | None) -> None:
        if attempt.ended:
            return  # its caller gave up before the answer
        attempt.ended = True
        job, worker = attempt.job, attempt.worker
        worker.free += 1
        policy = worker.guard.policy.breaker
        latency = self.now - attempt.call.began
        outcome = outcome_of(failure, latency, policy.slow_after if policy else None)
        worker.guard.end(attempt.call, outcome, self.now)
        if attempt.holder is not None:
            self._end_trial(attempt, outcome)
        if failure is None:
            self.recorder.done(self.now, job.attempt - job.calls)
        elif attempt.holder is not None:
            # A failed trial does not count: the job gets its attempt back and goes to the end of the queue.
            job.attempt -= 1
            job.calls -= 1
            self._queue(job)
        else:
            self._fail(job, failure, worker)
        self._fill(worker)

    def _fail(self, job: SimulatedJob, failure: Failure, worker: SimulatedWorker) -> None:
        retry = self.policy.retry
        verdict = judge_failure(
            failure,
            retry,
            attempt=job.attempt,
            max_attempts=retry.max_attempts,
            chance=self._chance(),
            previous=job.delay,
        )
        job.failed_as = failure.error_class
        if failure.retry_after is not None and self.policy.hold_lane:
            worker.held_until = max(worker.held_until, self.now + failure.retry_after.total_seconds())
        if isinstance(verdict, RetryAfter):
            job.delay = verdict.delay
            self._later(verdict.delay.total_seconds(), self._queue, job)
        else:
            self.recorder.gave_up(self.now, job.attempt - job.calls, poison=job.poison)

    # -- what the workers share -----------------------------------------------------------------------------
    def _flush(self, worker: SimulatedWorker) -> None:
        """Report to the store, read its state, and take a trial if one is free: one statement a second."""
        self._later(FLUSH_SECONDS * (0.9 + 0.2 * self._chance()), self._flush, worker)
        guard = worker.guard
        self._held_until = max(self._held_until, worker.held_until)
        worker.held_until = self._held_until
        if guard.policy.breaker is not None:
            self._votes[worker.number] = Vote(
                guard.vote(self.now), guard.shared.version, guard.is_caller(self.now)
            )
            self._judge()
            guard.update_shared(self._shared, len(self._workers), self.now)
            self._try_trial(worker)
        self._fill(worker)

    def _judge(self) -> None:
        policy = self.policy.dependency.breaker
        if policy is None:
            return
        current = [vote for vote in self._votes.values() if vote.version == self._shared.version]
        judged = judge(
            self._shared,
            policy,
            votes=sum(vote.broken for vote in current),
            callers=sum(vote.is_caller for vote in self._votes.values()),
            now=self._moment(),
            chance=self._chance(),
        )
        if judged is not None:
            self._shared = judged
            if judged.state is BreakerState.OPEN:
                self.recorder.opened(self.now)

    def _try_trial(self, worker: SimulatedWorker) -> None:
        """Take at most one trial per flush, so that no single bad node decides for the fleet."""
        if not self._ready or not worker.free or self._shared.state is not BreakerState.HALF_OPEN:
            return
        self._trials += 1
        holder = f"{worker.number}:{self._trials}"
        until = self._moment() + timedelta(seconds=self.scenario.timeout_seconds + TRIAL_GRACE)
        changed = take_trial(self._shared, holder, now=self._moment(), until=until)
        if changed is not None:
            self._shared = changed
            job = self._ready.popleft()
            job.attempt += 1
            self._call(job, worker, 0, holder)

    def _end_trial(self, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        ended = end_trial(self._shared, attempt.holder or "", outcome)
        if ended is None:
            return
        self._shared = ended
        self._judge()
        attempt.worker.guard.update_shared(self._shared, len(self._workers), self.now)
