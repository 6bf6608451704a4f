"""What a policy file says, as values, and how it is laid over what the code says: task over queue over code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.domain.backoff import Backoff
from holdfast.domain.classify import Rule
from holdfast.domain.duration import format_duration
from holdfast.domain.fairness import WEIGHTS
from holdfast.domain.gates import Gate
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.limits import Limits, OwnerPolicy, Quota
from holdfast.domain.policy import Retry
from holdfast.domain.suggest import suggest
from holdfast.engine.policies.line_numbers import Path
from holdfast.engine.policies.tables import PolicySource
from holdfast.engine.tasks import Policy

#: What a section says that replaces the code's word as it is.
_PLAIN = ("timeout", "deadline", "start_within", "retention", "stuck_after", "stuck_action", "cost", "price")
#: The quota of owners that name none.
DEFAULT_QUOTA = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`[tasks.NAME]` or `[queues.NAME]`: only what is said in it."""

    path: Path
    said: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits | None = None  #: of this task, or of this queue as a whole: never inherited


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All that a file says; without a file, nothing."""

    tasks: Mapping[str, Section] = field(default_factory=dict)
    queues: Mapping[str, Section] = field(default_factory=dict)
    dependencies: Mapping[str, DependencyPolicy] = field(default_factory=dict)
    owners: Mapping[str, OwnerPolicy] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    classifiers: tuple[Rule, ...] = ()  #: for every task that does not name its own
    gates: tuple[tuple[str, Gate], ...] = ()
    notifiers: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: plug-in → kinds of events
    source: PolicySource = field(default_factory=PolicySource)

    def queue_limits(self, queue: str) -> Limits | None:
        section = self.queues.get(queue)
        return None if section is None else section.limits

    def dependency(self, name: str) -> DependencyPolicy:
        return self.dependencies.get(name) or DependencyPolicy()

    def owner(self, name: str) -> OwnerPolicy:
        return self.owners.get(name) or OwnerPolicy()

    def quota_of(self, owner: str) -> Quota:
        """The quota that *owner* is counted against; one without bounds where none is set."""
        return self.quotas.get(self.owner(owner).quota or DEFAULT_QUOTA) or Quota()


def apply(policies: Policies, tasks: Mapping[str, Policy]) -> dict[str, Policy]:
    """The policies in force for these *tasks*, given what the code says about each. Says what cannot be, if anything."""
    for name, section in policies.tasks.items():
        if name not in tasks:
            raise policies.source.wrong(section.path, f"there is no task {name!r}; {suggest(name, tasks)}")
    return {name: policy_of(policies, name, declared) for name, declared in tasks.items()}


def policy_of(policies: Policies, task: str, declared: Policy) -> Policy:
    """The policy in force for one task."""
    own, queue = policies.tasks.get(task), policies.queues.get(declared.queue)
    said: dict[str, Any] = {**(queue.said if queue else {}), **(own.said if own else {})}
    limits = own.limits if own and own.limits else declared.limits
    whole = queue.limits if queue else None
    if limits is not None and whole is not None and (what := limits.exceeds(whole)):
        section = own if own and own.limits else queue
        path = (*section.path, "limits", what) if section else ()
        raise policies.source.wrong(
            path,
            f"task {task!r} may have more than its whole queue {declared.queue!r}; lower one, raise the other",
        )
    cap = said.get("cap", declared.retry.backoff.cap)
    if said.get("longest") is not None and said["longest"] > cap:
        section = own if own and "longest" in own.said else queue
        path = (*section.path, "backoff") if section else ()
        raise policies.source.wrong(
            path,
            f"it asks for {format_duration(said['longest'])}, but the cap is {format_duration(cap)}; set cap as well",
        )
    rules = said.get("classifiers", policies.classifiers)
    return replace(
        declared,
        retry=_retry(declared.retry, said),
        rules=(*declared.rules, *rules),
        limits=limits,
        **{key: said[key] for key in _PLAIN if key in said},
    )


def _retry(declared: Retry, said: Mapping[str, Any]) -> Retry:
    most = said.get("max_attempts", declared.max_attempts)
    by_code = said.get("attempts_by_code", declared.attempts_by_code)
    curve = declared.backoff
    return replace(
        declared,
        max_attempts=most,
        backoff=Backoff(
            said.get("curve", curve.curve), said.get("jitter", curve.jitter), said.get("cap", curve.cap)
        ),
        max_elapsed=said.get("max_elapsed", declared.max_elapsed),
        # One part may come from the code and the other from the file: the smaller number holds, as it would anyway.
        attempts_by_code={code: min(attempts, most) for code, attempts in by_code.items()},
        windows=said.get("windows", declared.windows),
        max_retry_after=said.get("max_retry_after", declared.max_retry_after),
    )
