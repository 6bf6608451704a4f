"""What owners may use, by the policy file, and what they have used."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.engine.engine import Engine
from holdfast.engine.quotas import COST, JOBS, MANUAL_RETRIES, MILLI
from holdfast.engine.tables.usage import quota_use
from holdfast.resilience.limits import Rate


@dataclass(frozen=True, slots=True)
class PeriodUse:
    """What was used in the current day or month (UTC). Without a *limit*, use is not counted."""

    used: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota, period by period."""

    day: PeriodUse
    month: PeriodUse


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRow:
    """The limits of an owner, and its use of quotas."""

    owner: str
    weight: float  #: its share where owners are served in turn
    rate: Rate | None  #: how often its jobs may start
    concurrency: int | None
    jobs: QuotaUse
    cost: QuotaUse
    manual_retries: QuotaUse


async def owner_row(engine: Engine, owner: str) -> OwnerRow:
    """Return the limits and the use of *owner*. An owner that no policy names has the limits of all others."""
    policies = engine.admission.policies
    policy, quota = policies.owner(owner), policies.quota_of(owner)
    jobs, cost, retries = [
        await quota_use(engine.store, f"{counted} {owner}") for counted in (JOBS, COST, MANUAL_RETRIES)
    ]
    return OwnerRow(
        owner=owner,
        weight=policy.weight,
        rate=policy.limit.rate,
        concurrency=policy.limit.concurrency,
        jobs=QuotaUse(
            PeriodUse(jobs.get("day", 0), quota.per_day), PeriodUse(jobs.get("month", 0), quota.per_month)
        ),
        cost=QuotaUse(
            PeriodUse(cost.get("day", 0) / MILLI, quota.cost_per_day),
            PeriodUse(cost.get("month", 0) / MILLI, quota.cost_per_month),
        ),
        manual_retries=QuotaUse(
            PeriodUse(retries.get("day", 0), quota.manual_retries_per_day),
            PeriodUse(retries.get("month", 0), quota.manual_retries_per_month),
        ),
    )
