"""Credits, as values: grants, holds, and the entries of a double-entry ledger (S3).

    grant ─► available ─reserve─► reserved ─capture─► spent
                 ▲  └─expire─► expired ▲ │
                 └───────── return ──────┴─┘      (into a grant that has expired: straight to expired)

What comes in is taken from the bucket `granted:<source>`, so that the entries of every transaction sum to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from holdfast import State, UsageError
from holdfast.extensions import JobId

AVAILABLE, RESERVED, SPENT, EXPIRED = "available", "reserved", "spent", "expired"
#: The most credits that one price or grant may be.
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
    grants: tuple[Grant, ...] = ()
