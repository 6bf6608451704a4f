"""Selling jobs: credits are reserved when a job begins, captured when it completes, returned when it ends otherwise (S3)."""

from holdfast.credits.verbs import Credits
from holdfast.domain.credit import Account, CreditHold, CreditQuota, Grant, LedgerEntry, Usage
from holdfast.errors import InsufficientCredits, QuotaExceeded

__all__ = [
    "Account",
    "CreditHold",
    "CreditQuota",
    "Credits",
    "Grant",
    "InsufficientCredits",
    "LedgerEntry",
    "QuotaExceeded",
    "Usage",
]
