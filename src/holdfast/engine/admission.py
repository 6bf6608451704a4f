"""What decides whether a job may start now, besides the policy of its task: dependencies, queues, owners and quotas.

They are declared in code (`app.dependency(…)`, `app.queue(…)`). `holdfast.toml` overrides them, key by key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from holdfast.engine.lane_store import Cap, Charge
from holdfast.engine.quotas import job_charges, manual_retry_charges, with_organization
from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.job import Claimed, Lane
from holdfast.resilience.gates import Gate
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limits import Limit, Limits
from holdfast.tasks.policy_file.reloading import Reloader
from holdfast.tasks.policy_file.values import Policies

#: Returns whether a service is well, without the risk of a real call.
Probe = Callable[[], Awaitable[bool]]

_NO_LIMITS = Limits()


class Admission:
    """The limits and guards of one app. *reloader* holds the policies that are in force now; None means those of the code."""

    def __init__(self, reloader: Reloader | None = None) -> None:
        self.reloader = reloader or Reloader(None)
        self.dependencies, self.queues = self.reloader.declared.dependencies, self.reloader.declared.queues
        self.probes: dict[str, Probe] = {}

    @property
    def policies(self) -> Policies:
        """The policy file as it is in force now, with the overrides over it."""
        return self.reloader.policies

    def dependency(self, name: str) -> DependencyPolicy:
        """Return how calls of this dependency are guarded."""
        return self.reloader.policies.dependency(name, self.dependencies.get(name))

    @property
    def gates(self) -> tuple[tuple[str, Gate], ...]:
        """The gates of plug-ins."""
        return self.reloader.policies.gates

    @property
    def weights(self) -> Mapping[str, float]:
        """The weights of owners in fair queuing."""
        return {name: owner.weight for name, owner in self.reloader.policies.owners.items()}

    @property
    def priorities(self) -> Mapping[str, int]:
        """The weights of the priority levels."""
        return self.reloader.policies.priorities

    @property
    def declared_queues(self) -> set[str]:
        """The queues that the policy file or `app.queue` names."""
        return {*self.reloader.policies.queues, *self.queues}

    def limits_of_queue(self, queue: str) -> Limits | None:
        return self.reloader.policies.queue_limits(queue, self.queues.get(queue))

    def caps(self, lane: Lane, task_limits: Limits | None) -> tuple[Cap, ...]:
        """Return the limits of a lane as a whole: those of its queue and of its task."""
        scoped = (
            ("queue", lane.queue, self.limits_of_queue(lane.queue)),
            ("task", lane.task, task_limits),
        )
        return tuple(
            _cap(f"{kind}:{name}", limits)
            for kind, name, limits in scoped
            if limits is not None and (limits.concurrency is not None or limits.rate is not None)
        )

    def charges(self, claimed: Claimed, task_limits: Limits | None, cost: float) -> list[Charge]:
        """Return what starting this job takes from the rates of its owner and its key, and from quotas.

        A retry is not charged to quotas again.
        """
        owner, key = claimed.owner, own_key(claimed.key)
        policies, of_queue = self.reloader.policies, self.limits_of_queue(claimed.lane.queue)
        if of_queue is None and task_limits is None and not policies.owners and not policies.quotas:
            return []
        found: list[Charge] = []
        for kind, name, limits in (
            ("queue", claimed.lane.queue, of_queue),
            ("task", claimed.lane.task, task_limits),
        ):
            if limits is not None and owner is not None:
                found += _rate(f"owner {owner} in {kind} {name}", limits.per_owner)
            if limits is not None and key is not None:
                found += _rate(f"key {key} in {kind} {name}", limits.per_key)
        for name in () if owner is None else with_organization(owner):
            found += _rate(f"owner {name}", policies.owner(name).limit)
            if claimed.attempt == 1:
                found += job_charges(name, policies.quota_of(name), cost)
        return found

    @property
    def limits_manual_retries(self) -> bool:
        """Whether any quota limits manual retries."""
        return any(quota.limits_manual_retries for quota in self.policies.quotas.values())

    def manual_retry_charges(self, owner: str) -> list[Charge]:
        """Return what a manual retry of a job of *owner* takes from its quota and from that of its organization."""
        quota_of = self.policies.quota_of
        return [
            charge
            for name in with_organization(owner)
            for charge in manual_retry_charges(name, quota_of(name))
        ]


def _cap(scope: str, limit: Limit) -> Cap:
    if limit.rate is None:
        return Cap(scope, limit.concurrency)
    return Cap(scope, limit.concurrency, limit.rate.count, limit.rate.per)


def _rate(scope: str, limit: Limit) -> list[Charge]:
    return [] if limit.rate is None else [Charge(scope, "rate", limit.rate.count, 1, limit.rate.per)]
