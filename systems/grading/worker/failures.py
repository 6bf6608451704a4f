"""The failures of an attempt: transient ones are retried, permanent ones and a passed deadline are not.

The provider's breaker counts `Retryable` errors as an outage, and `Fatal` ones as a response.
"""

from __future__ import annotations

from holdfast import Fatal, Retryable
from systems.grading.worker.ledger import Cost


class TransientFailure(Retryable):
    """The attempt failed and may be retried. *asked_ms* is the wait that the provider asked for."""

    code: str

    def __init__(self, code: str, reason: str, *, asked_ms: float | None = None) -> None:
        super().__init__(reason, code=code)
        self.reason, self.asked_ms = reason, asked_ms


class PermanentFailure(Fatal):
    """The attempt failed, and so would any other. It is not retried."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason, code=code)
        self.reason = reason


class Expired(Exception):
    """The deadline has passed before a call to the provider. *spent* is the cost of earlier calls, if any."""

    def __init__(self, spent: Cost | None = None) -> None:
        super().__init__("the deadline has passed")
        self.spent = spent
