"""What credits refuse."""

from __future__ import annotations

from datetime import datetime

from holdfast.errors import NotFound, Refused


class UnknownAccount(NotFound):
    """No credit account has this name."""

    def __init__(self, account: str) -> None:
        super().__init__(
            f"no account has the name {str(account)[:60]!r}; `holdfast credits accounts` shows the existing ones"
        )
        self.account = account


class InsufficientCredits(Refused):
    """The account that pays for a job has fewer credits than it costs (HTTP 402)."""

    def __init__(self, required: int, available: int, account: str) -> None:
        super().__init__(
            f"{account} has {available} credits, and this takes {required}; add credits and send it again",
            code="INSUFFICIENT_CREDITS",
            required=required,
            available=available,
        )
        self.required, self.available, self.account = required, available, account


class QuotaExceeded(Refused):
    """An account has used up its quota (HTTP 429); *resets_at* is when the next period begins."""

    def __init__(self, account: str, quota: str, limit: int, resets_at: datetime) -> None:
        what, _, period = quota.partition("_per_")
        things = "retries" if what == "retries" else "credits"
        super().__init__(
            f"{account} may use {limit} {things} a {period}, and this would be more;"
            f" send it again after {resets_at:%Y-%m-%d %H:%M} UTC, or raise the quota",
            code="QUOTA_EXCEEDED",
            quota=quota,
            limit=limit,
            resets_at=resets_at,
        )
        self.account, self.quota, self.limit, self.resets_at = account, quota, limit, resets_at
