"""The policies that a simulation compares, made of the same values as in production."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.policy import Retry
from holdfast.tasks.options import Reader
from holdfast.tasks.policy_file.reading import load
from holdfast.tasks.policy_file.values import policy_of
from holdfast.tasks.task import Policy
from holdfast.values.suggest import suggest

#: A common setup of services and clients: 25 attempts over hours, spread as widely as possible.
PATIENT = Retry(25, base="1s", factor=2, jitter="full", cap="300s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """A policy to simulate."""

    name: str
    about: str
    dependency: DependencyPolicy
    retry: Retry = PATIENT
    hold_lane: bool = False  #: whether a Retry-After holds the whole lane


def _only(
    *,
    breaker: BreakerPolicy | None = None,
    limiter: LimiterPolicy | None = None,
    budget: BudgetPolicy | None = None,
) -> DependencyPolicy:
    return DependencyPolicy(breaker=breaker, limiter=limiter, budget=budget)


BACKOFF = SimulatedPolicy(name="backoff", about="backoff and jitter only", dependency=_only())
BREAKER = SimulatedPolicy(
    name="breaker",
    about="a breaker that releases all on closing",
    dependency=_only(breaker=BreakerPolicy()),
)
FAILURES = SimulatedPolicy(
    name="failures",
    about="a breaker with a ramp and a limit that look at failures only",
    dependency=_only(breaker=BreakerPolicy(), limiter=LimiterPolicy(max_latency=100)),
)
BUDGET = SimulatedPolicy(name="budget", about="a retry budget", dependency=_only(budget=BudgetPolicy()))
BULKHEAD = SimulatedPolicy(
    name="bulkhead",
    about="ten calls at once a worker, whatever happens",
    dependency=_only(limiter=LimiterPolicy(start=10, ramp_from=40, least=10, most=10)),
)
LIMITER = SimulatedPolicy(
    name="limiter",
    about="adaptive limit and retry budget",
    dependency=_only(limiter=LimiterPolicy(), budget=BudgetPolicy()),
)
EVERYTHING = SimulatedPolicy(
    name="everything",
    about="breaker with ramp, adaptive limit, retry budget: the default",
    dependency=DependencyPolicy(),
    hold_lane=True,
)

POLICIES = {one.name: one for one in (BACKOFF, BREAKER, FAILURES, BUDGET, BULKHEAD, LIMITER, EVERYTHING)}
#: The policies that are simulated and drawn by default.
DEFAULT_POLICIES = ("backoff", "breaker", "budget", "limiter", "everything")


def policies_in(
    file: str | Path,
    task: str | None = None,
    dependency: str | None = None,
    extension_options: Mapping[str, Reader] | None = None,
) -> list[SimulatedPolicy]:
    """Return the policies in a policy file, to be simulated.

    Args:
        file: The policy file.
        task: The task whose policy is returned; None for all tasks in the file.
        dependency: The dependency that the tasks call. The default is the only one in the file, else one with
            default guards.
        extension_options: The keys that extensions add to tasks and queues, each with its reader.

    Raises:
        UsageError: The file has no tasks, or not the task or dependency.
    """
    policies = load(file, extension_options or {})
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
    on = "a dependency with default guards" if dependency is None else dependency
    return [
        SimulatedPolicy(
            name=name,
            about=f"{Path(file).name}, on {on}",
            dependency=guards,
            retry=policy_of(policies, name, Policy()).retry,
            hold_lane=True,
        )
        for name in names
    ]
