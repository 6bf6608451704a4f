"""What credits refuse."""

from __future__ import annotations

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
