"""Credits, as values: grants, holds, quotas, and the entries of a double-entry ledger (S3).

    grant ─► available ─reserve─► reserved ─capture─► spent
                 ▲  └─expire─► expired ▲ │
                 └───────── return ──────┴─┘      (into a grant that has expired: straight to expired)

What comes in is taken from the bucket `granted:<source>`, so that the entries of every transaction sum to zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from holdfast import State, UsageError
from holdfast.contrib.credits.errors import QuotaExceeded
from holdfast.extensions import JobId, periods, validation

AVAILABLE, RESERVED, SPENT, EXPIRED = "available", "reserved", "spent", "expired"
#: The most credits that one price, grant or quota may be.
MOST = 10**12
_LONGEST = 200


def granted(source: str) -> str:
    """The bucket that a grant from *source* is taken from."""
    return f"granted:{source}"


def account_name(value: object) -> str:
    """*value*, if it can name an account: the owner of jobs, or an organisation that pays for owners."""
    if not isinstance(value, str) or not value or len(value) > _LONGEST or not value.isprintable():
        raise UsageError(
            f"{str(value)[:40]!r} cannot name an account; use up to {_LONGEST} printable characters, e.g. user:7"
        )
    return value


class Draw(NamedTuple):
    """An amount that was taken from a grant."""

    grant: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Credits that came in together, and what is left of them."""

    id: str
    account: str
    source: str
    amount: int
    remaining: int
    expires_at: datetime | None
    created_at: datetime
    by: str = ""
    note: str = ""

    def has_expired(self, now: datetime) -> bool:
        """Return whether it has expired. At its very moment it has not: as with deadlines, equal is on time."""
        return self.expires_at is not None and now > self.expires_at


class HoldState(StrEnum):
    """What became of a hold."""

    HELD = "held"
    CAPTURED = "captured"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditHold:
    """What one generation of a job has reserved, and from which grants."""

    job_id: JobId
    generation: int
    account: str  #: who pays
    owner: str
    price: int
    draws: tuple[Draw, ...]
    is_retry: bool
    at: datetime


class Sold(NamedTuple):
    """What the ledger needs to know of a job."""

    job_id: JobId
    task: str
    owner: str | None
    generation: int
    state: State


def hold_state(hold: CreditHold, sold: Sold | None) -> HoldState:
    """Return the state that *hold* should have, given its job as it is now (None: it was purged, and its end is unknown)."""
    if sold is None or sold.generation > hold.generation:
        return HoldState.RETURNED  # only what failed or was cancelled has another generation
    match sold.state:
        case State.COMPLETE:
            return HoldState.CAPTURED
        case State.FAILED | State.CANCELLED:
            return HoldState.RETURNED
    return HoldState.HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the ledger. Those of one *tx* sum to zero."""

    tx: str
    account: str
    bucket: str
    amount: int
    reason: str
    job_id: JobId | None = None
    generation: int | None = None
    by: str = ""
    note: str = ""
    number: int = 0  #: given by the store, growing
    at: datetime | None = None  #: likewise


class Usage(NamedTuple):
    """What an account has used in one day or month."""

    begins: datetime
    retries: int = 0
    cost: int = 0


#: Each bound of a quota: its period, and what is counted in it.
_BOUNDS = {
    "retries_per_day": ("day", "retries"),
    "retries_per_month": ("month", "retries"),
    "cost_per_day": ("day", "cost"),
    "cost_per_month": ("month", "cost"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditQuota:
    """What an account may use in a calendar day and month (UTC): manual retries, and credits. None: no bound.

    Credits that were returned are not counted.
    """

    retries_per_day: int | None = None
    retries_per_month: int | None = None
    cost_per_day: int | None = None
    cost_per_month: int | None = None

    def __post_init__(self) -> None:
        for name in _BOUNDS:
            if getattr(self, name) is not None:
                validation.whole(name, getattr(self, name), 0, MOST)

    def check(self, account: str, uses: Uses, now: datetime, *, is_retry: bool) -> None:
        """Raise `QuotaExceeded` when *uses*, this one included, are more than it allows."""
        for name, (period, counted) in _BOUNDS.items():
            most = getattr(self, name)
            if most is None or (counted == "retries" and not is_retry):
                continue
            if getattr(uses.of(period, now), counted) > most:
                raise QuotaExceeded(account, name, most, periods.period_ends(period, now))


@dataclass(frozen=True, slots=True)
class Uses:
    """What an account has used in the day and the month of its last use."""

    by_period: dict[str, Usage] = field(default_factory=dict)

    def of(self, period: str, now: datetime) -> Usage:
        """Return what was used in the *period* that *now* is in."""
        begins, kept = periods.period_begins(period, now), self.by_period.get(period)
        return kept if kept is not None and kept.begins == begins else Usage(begins)

    def add(self, now: datetime, *, retries: int = 0, cost: int = 0) -> Uses:
        used = {period: self.of(period, now) for period in periods.PERIODS}
        return Uses({p: Usage(u.begins, u.retries + retries, u.cost + cost) for p, u in used.items()})

    def reverse(self, since: datetime, cost: int) -> Uses:
        """Return the uses without *cost*, which was used at *since* and was returned. Only the current periods change."""
        return Uses(
            {
                period: used._replace(cost=max(used.cost - cost, 0))
                if used.begins == periods.period_begins(period, since)
                else used
                for period, used in self.by_period.items()
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account. *granted* is all that ever came in; available, reserved, spent and expired sum to it."""

    id: str
    paid_by: str | None
    available: int
    reserved: int
    created_at: datetime
    spent: int = 0
    expired: int = 0
    granted: int = 0
    quota: CreditQuota = field(default_factory=CreditQuota)
    usage: dict[str, Usage] = field(default_factory=dict)
    grants: tuple[Grant, ...] = ()
