"""What governs whether a job may start now, beside its task's own policy: dependencies, queues, owners and quotas.

Declared in code (`app.dependency(…)`, `app.queue(…)`) and overridden by `holdfast.toml`, name by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from holdfast.domain.concurrency_keys import own_key
from holdfast.domain.gates import Gate
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.job import Claimed, Lane
from holdfast.domain.limits import Limit, Limits
from holdfast.engine.lane_store import Cap, Charge
from holdfast.engine.policies.values import Policies

#: Asks a service how it is, without the risk of a real call.
Probe = Callable[[], Awaitable[bool]]

_NO_LIMITS = Limits()
#: Costs are counted in thousandths, so that they add up exactly.
MILLI = 1000


class Admission:
    """*policies* gives the file's words as they are now: they may be read anew at any time."""

    def __init__(self, policies: Callable[[], Policies] = Policies) -> None:
        self._policies = policies
        self.dependencies: dict[str, DependencyPolicy] = {}
        self.queues: dict[str, Limits] = {}
        self.probes: dict[str, Probe] = {}

    def dependency(self, name: str) -> DependencyPolicy:
        return self._policies().dependencies.get(name) or self.dependencies.get(name) or DependencyPolicy()

    @property
    def gates(self) -> tuple[tuple[str, Gate], ...]:
        """Those of plug-ins."""
        return self._policies().gates

    @property
    def weights(self) -> Mapping[str, float]:
        """Of owners in fair lines."""
        return {name: owner.weight for name, owner in self._policies().owners.items()}

    @property
    def priorities(self) -> Mapping[str, int]:
        """The weights of the levels of priority."""
        return self._policies().priorities

    @property
    def declared_queues(self) -> set[str]:
        """The queues that the file or `app.queue` names."""
        return {*self._policies().queues, *self.queues}

    def limits_of_queue(self, queue: str) -> Limits | None:
        return self._policies().queue_limits(queue) or self.queues.get(queue)

    def caps(self, lane: Lane, task_limits: Limits | None) -> tuple[Cap, ...]:
        """The bounds of a lane as a whole: its queue's and its task's."""
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
        """What starting this job takes from the rates of its owner and its key, and from quotas. A retry is not charged
        to quotas: it was paid for."""
        owner, key = claimed.owner, own_key(claimed.key)
        if owner is None and key is None:
            return []
        policies, of_queue = self._policies(), self.limits_of_queue(claimed.lane.queue)
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
        if owner is not None:
            found += self._owed(owner, claimed.attempt, cost)
            organisation, slash, _ = owner.partition("/")
            if slash:
                found += self._owed(organisation, claimed.attempt, cost)
        return found

    def _owed(self, owner: str, attempt: int, cost: float) -> list[Charge]:
        """Of one owner, or of the organisation that "acme/ann" belongs to."""
        policies = self._policies()
        found = _rate(f"owner {owner}", policies.owner(owner).limit)
        if attempt > 1:
            return found
        quota, spent = policies.quota_of(owner), round(cost * MILLI)
        bounds = (
            (f"quota of {owner}", "day", quota.per_day, 1),
            (f"quota of {owner}", "month", quota.per_month, 1),
            (f"cost of {owner}", "day", _milli(quota.cost_per_day), spent),
            (f"cost of {owner}", "month", _milli(quota.cost_per_month), spent),
        )
        charges = [Charge(*bound) for bound in bounds if bound[2] is not None]  # type: ignore[arg-type]
        return found + charges


def _milli(cost: float | None) -> int | None:
    return None if cost is None else round(cost * MILLI)


def _cap(scope: str, limit: Limit) -> Cap:
    if limit.rate is None:
        return Cap(scope, limit.concurrency)
    return Cap(scope, limit.concurrency, limit.rate.count, limit.rate.per)


def _rate(scope: str, limit: Limit) -> list[Charge]:
    return [] if limit.rate is None else [Charge(scope, "rate", limit.rate.count, 1, limit.rate.per)]
