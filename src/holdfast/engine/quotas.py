"""Quotas of owners: what a job and its manual retry use of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.engine.lane_store import Charge, QuotaRefusal
from holdfast.errors import QuotaExceeded
from holdfast.resilience.limits import Quota
from holdfast.values.periods import period_begins

#: What is counted. With the name of the owner it is the scope of a charge.
JOBS, COST, MANUAL_RETRIES = "quota of", "cost of", "manual retries of"
#: Costs are counted in thousandths, so that they add up exactly.
MILLI = 1000


def with_organization(owner: str) -> list[str]:
    """Return *owner* and the organization that it belongs to: "acme/ann" belongs to "acme"."""
    organization, slash, _ = owner.partition("/")
    return [owner, organization] if slash else [owner]


def job_charges(owner: str, quota: Quota, cost: float) -> list[Charge]:
    """Return what the first attempt of a job uses of the *quota* of *owner*."""
    return [
        *_charges(f"{JOBS} {owner}", quota.per_day, quota.per_month, 1),
        *_charges(
            f"{COST} {owner}", _milli(quota.cost_per_day), _milli(quota.cost_per_month), round(cost * MILLI)
        ),
    ]


def manual_retry_charges(owner: str, quota: Quota) -> list[Charge]:
    """Return what a manual retry uses of the *quota* of *owner*."""
    day, month = quota.manual_retries_per_day, quota.manual_retries_per_month
    return list(_charges(f"{MANUAL_RETRIES} {owner}", day, month, 1))


def manual_retry_refused(refusal: QuotaRefusal, now: datetime) -> QuotaExceeded:
    """Return the error for a manual retry that was refused at *now*, by the store's clock."""
    scope, period, limit, *_ = refusal.charge
    # The clock has moved on since the refusal: what was left of the period then ends shortly after its end.
    resets_at = period_begins(period, now + refusal.resets_in)
    owner = scope.removeprefix(f"{MANUAL_RETRIES} ")
    return QuotaExceeded(owner, f"manual_retries_per_{period}", limit, resets_at)


def _charges(scope: str, day: int | None, month: int | None, amount: int) -> Iterator[Charge]:
    for period, limit in (("day", day), ("month", month)):
        if limit is not None:
            yield Charge(scope, period, limit, amount)


def _milli(cost: float | None) -> int | None:
    return None if cost is None else round(cost * MILLI)
