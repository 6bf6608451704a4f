"""The values of a policy file, and how they apply: a task's section over its queue's over the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.errors import UsageError
from holdfast.resilience.backoff import Backoff
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.classify import Rule
from holdfast.resilience.fairness import WEIGHTS
from holdfast.resilience.gates import Gate
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.limits import Limit, Limits, OwnerPolicy, Quota
from holdfast.resilience.policy import Retry
from holdfast.tasks.options import OPTIONS
from holdfast.tasks.policy_file.line_numbers import Path
from holdfast.tasks.policy_file.tables import PolicySource
from holdfast.tasks.task import Policy
from holdfast.values.duration import format_duration
from holdfast.values.suggest import suggest

#: The quota of owners that name none.
DEFAULT_QUOTA = "default"
#: The mechanisms that guard a dependency, by the key of each.
MECHANISMS: Mapping[str, type[BreakerPolicy | LimiterPolicy | BudgetPolicy]] = {
    "breaker": BreakerPolicy,
    "limiter": LimiterPolicy,
    "budget": BudgetPolicy,
}


@dataclass(frozen=True, slots=True)
class DeclaredGuards:
    """What the code declares beside its tasks, by name."""

    dependencies: dict[str, DependencyPolicy] = field(default_factory=dict)
    queues: dict[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The values that `[tasks.NAME]` or `[queues.NAME]` sets."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  #: options of extensions
    limits: Limits | None = None  #: of this task, or of this queue as a whole; never inherited


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencySection:
    """The values that `[dependencies.NAME]` sets: the keys of each mechanism, or None for one that is off."""

    path: Path
    mechanisms: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The contents of a policy file. Without a file it is empty."""

    tasks: Mapping[str, Section] = field(default_factory=dict)
    queues: Mapping[str, Section] = field(default_factory=dict)
    dependencies: Mapping[str, DependencySection] = field(default_factory=dict)
    owners: Mapping[str, OwnerPolicy] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    classifiers: tuple[Rule, ...] = ()  #: for every task that does not name its own
    gates: tuple[tuple[str, Gate], ...] = ()
    notifiers: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: plug-in → kinds of events
    source: PolicySource = field(default_factory=PolicySource)

    def queue_limits(self, queue: str, declared: Limits | None = None) -> Limits | None:
        """Return the limits of the whole queue, if it has any, given those *declared* in the code.

        Raises:
            UsageError: The file contradicts the code.
        """
        section = self.queues.get(queue)
        return declared if section is None else self._limits(section, declared)

    def dependency(self, name: str, declared: DependencyPolicy | None = None) -> DependencyPolicy:
        """Return the policy of the dependency *name*, given the one *declared* in the code.

        Raises:
            UsageError: The file contradicts the code.
        """
        policy, section = declared or DependencyPolicy(), self.dependencies.get(name)
        if section is None:
            return policy
        mechanisms: dict[str, Any] = {}
        for key, values in section.mechanisms.items():
            try:
                mechanisms[key] = values if values is None else _mechanism(policy, key, values)
            except UsageError as error:
                raise self.source.wrong_argument((*section.path, key), values or {}, error) from None
        return replace(policy, **mechanisms)

    def task_limits(self, task: str, declared: Limits | None) -> Limits | None:
        """Return the limits of a task, given those *declared* in the code.

        Raises:
            UsageError: The file contradicts the code.
        """
        section = self.tasks.get(task)
        return declared if section is None else self._limits(section, declared)

    def _limits(self, section: Section, declared: Limits | None) -> Limits | None:
        """Return the limits of a section. Those that it leaves out are as *declared*."""
        given = section.limits
        if given is None or declared is None:
            return given or declared
        try:
            return Limits(
                **_limit(given, declared),
                per_owner=Limit(**_limit(given.per_owner, declared.per_owner)),
                per_key=Limit(**_limit(given.per_key, declared.per_key)),
            )
        except UsageError as error:
            raise self.source.wrong((*section.path, "limits"), str(error)) from None

    def owner(self, name: str) -> OwnerPolicy:
        """Return the policy of the owner *name*."""
        return self.owners.get(name) or OwnerPolicy()

    def quota_of(self, owner: str) -> Quota:
        """Return the quota of *owner*, without bounds if none is set."""
        return self.quotas.get(self.owner(owner).quota or DEFAULT_QUOTA) or Quota()


def _mechanism(policy: DependencyPolicy, key: str, values: Mapping[str, Any]) -> Any:
    """Return a mechanism of *policy* with the *values* of a file over it."""
    declared = getattr(policy, key)
    if declared is None:
        return MECHANISMS[key](**values)
    if isinstance(declared, BreakerPolicy) and declared.max_cooldown == declared.cooldown:
        values = {"max_cooldown": None, **values}  # it was not set, so it follows the cooldown
    return replace(declared, **values)


def _limit(given: Limit, declared: Limit) -> dict[str, Any]:
    return {
        key: getattr(declared, key) if getattr(given, key) is None else getattr(given, key)
        for key in ("concurrency", "rate")
    }


def apply(
    policies: Policies, tasks: Mapping[str, Policy], declared: DeclaredGuards | None = None
) -> dict[str, Policy]:
    """Return the policies in force for these *tasks*, given the policy of each in the code.

    *declared* is what else the code declares; it is checked too.

    Raises:
        UsageError: The file names an unknown task, or contradicts the code.
    """
    declared = declared or DeclaredGuards()
    for name, of_code in declared.dependencies.items():
        policies.dependency(name, of_code)
    for name, limits_of_code in declared.queues.items():
        policies.queue_limits(name, limits_of_code)
    for name, section in policies.tasks.items():
        if name not in tasks and section.path in policies.source.lines:  # an override may name any task
            raise policies.source.wrong(section.path, f"there is no task {name!r}; {suggest(name, tasks)}")
    return {name: policy_of(policies, name, declared) for name, declared in tasks.items()}


def policy_of(policies: Policies, task: str, declared: Policy) -> Policy:
    """Return the policy in force for one task, given its policy in the code.

    Raises:
        UsageError: The file contradicts the code.
    """
    own, queue = policies.tasks.get(task), policies.queues.get(declared.queue)
    values: dict[str, Any] = {**(queue.values if queue else {}), **(own.values if own else {})}
    limits = policies.task_limits(task, declared.limits)
    whole = queue.limits if queue else None
    if limits is not None and whole is not None and (what := limits.exceeds(whole)):
        section = own if own and own.limits else queue
        path = (*section.path, "limits", what) if section else ()
        raise policies.source.wrong(
            path,
            f"task {task!r} may have more than its whole queue {declared.queue!r}; lower one, raise the other",
        )
    cap = values.get("cap", declared.retry.backoff.cap)
    if values.get("longest") is not None and values["longest"] > cap:
        section = own if own and "longest" in own.values else queue
        path = (*section.path, "backoff") if section else ()
        raise policies.source.wrong(
            path,
            f"it asks for {format_duration(values['longest'])}, but the cap is {format_duration(cap)}; set cap as well",
        )
    rules = values.get("classifiers", policies.classifiers)
    return replace(
        declared,
        retry=_retry(declared.retry, values),
        rules=(*declared.rules, *rules),
        limits=limits,
        extra={**declared.extra, **(queue.extra if queue else {}), **(own.extra if own else {})},
        **{name: value for name, value in values.items() if name in OPTIONS},
    )


def _retry(declared: Retry, values: Mapping[str, Any]) -> Retry:
    max_attempts = values.get("max_attempts", declared.max_attempts)
    by_code = values.get("attempts_by_code", declared.attempts_by_code)
    curve = declared.backoff
    return replace(
        declared,
        max_attempts=max_attempts,
        backoff=Backoff(
            values.get("curve", curve.curve), values.get("jitter", curve.jitter), values.get("cap", curve.cap)
        ),
        max_elapsed=values.get("max_elapsed", declared.max_elapsed),
        # One part may come from the code and the other from the file. The smaller number counts anyway.
        attempts_by_code={code: min(attempts, max_attempts) for code, attempts in by_code.items()},
        windows=values.get("windows", declared.windows),
        max_retry_after=values.get("max_retry_after", declared.max_retry_after),
    )
