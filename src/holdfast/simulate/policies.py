"""What is done about it: values of the same kinds that production is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.budget import BudgetPolicy
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.policy import Retry
from holdfast.domain.suggest import suggest
from holdfast.engine.policies.reading import load
from holdfast.engine.policies.values import policy_of
from holdfast.engine.tasks import Policy
from holdfast.errors import UsageError

#: As many services and clients are set up: 25 attempts over hours, spread as widely as can be.
PATIENT = Retry(25, base="1s", factor=2, jitter="full", cap="300s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A policy under test."""

    name: str
    about: str
    dependency: DependencyPolicy
    retry: Retry = PATIENT
    hold_lane: bool = False  #: whether one answer's Retry-After keeps the whole lane


def _only(
    *,
    breaker: BreakerPolicy | None = None,
    limiter: LimiterPolicy | None = None,
    budget: BudgetPolicy | None = None,
) -> DependencyPolicy:
    return DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)


BACKOFF = Play(name="backoff", about="backoff and jitter only", dependency=_only())
BREAKER = Play(
    name="breaker",
    about="a breaker that releases all on closing",
    dependency=_only(breaker=BreakerPolicy()),
)
FAILURES = Play(
    name="failures",
    about="a breaker with a ramp and a limit that look at failures only",
    dependency=_only(breaker=BreakerPolicy(), limiter=LimiterPolicy(max_latency=100)),
)
BUDGET = Play(name="budget", about="a retry budget", dependency=_only(budget=BudgetPolicy()))
BULKHEAD = Play(
    name="bulkhead",
    about="ten calls at once a worker, whatever happens",
    dependency=_only(limiter=LimiterPolicy(start=10, ramp_from=40, least=10, most=10)),
)
LIMITER = Play(
    name="limiter",
    about="adaptive limit and retry budget",
    dependency=_only(limiter=LimiterPolicy(), budget=BudgetPolicy()),
)
EVERYTHING = Play(
    name="everything",
    about="breaker with ramp, adaptive limit, retry budget: the default",
    dependency=DependencyPolicy(),
    hold_lane=True,
)

PLAYS = {play.name: play for play in (BACKOFF, BREAKER, FAILURES, BUDGET, BULKHEAD, LIMITER, EVERYTHING)}
#: Those that are played and drawn unless others are asked for.
USUAL = ("backoff", "breaker", "budget", "limiter", "everything")


def plays_of(file: str | Path, task: str | None = None, dependency: str | None = None) -> list[Play]:
    """The policies of a file, to be played: of each task in it, or of one *task*, on this *dependency* (by default the only
    one in the file, else one with the usual guards)."""
    policies = load(file)
    if task is not None and task not in policies.tasks:
        raise UsageError(f"{file} has no task {task!r}; {suggest(task, policies.tasks)}")
    if dependency is None and len(policies.dependencies) == 1:
        [dependency] = policies.dependencies
    if dependency is not None and dependency not in policies.dependencies:
        raise UsageError(
            f"{file} has no dependency {dependency!r}; {suggest(dependency, policies.dependencies)}"
        )
    names = list(policies.tasks) if task is None else [task]
    if not names:
        raise UsageError(f"{file} has no tasks; write [tasks.NAME], or leave --file out")
    guards = DependencyPolicy() if dependency is None else policies.dependency(dependency)
    on = "a dependency with the usual guards" if dependency is None else dependency
    return [
        Play(
            name=name,
            about=f"{Path(file).name}, on {on}",
            dependency=guards,
            retry=policy_of(policies, name, Policy()).retry,
            hold_lane=True,
        )
        for name in names
    ]
