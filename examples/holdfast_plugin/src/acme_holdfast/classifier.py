"""A classifier for the errors of one client library.

It gets the exception and returns `Retryable(…)` or `Fatal(…)`, as if the handler had raised that, or an error
code. None leaves the error to the next classifier, and in the end to Holdfast.
"""

from __future__ import annotations

from holdfast import Fatal, Retryable


class AcmeError(Exception):
    """Stands for the error of a client library that you cannot change."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Acme answered: {reason}")
        self.reason = reason


def classify(error: BaseException) -> Retryable | Fatal | str | None:
    """Classify errors of Acme."""
    if not isinstance(error, AcmeError):
        return None
    match error.reason:
        case "month is closed":
            return Fatal("Acme has closed this month.", code="ACME_MONTH_CLOSED")
        case "nightly import":
            return Retryable("Acme imports until morning.", after="3h", code="ACME_IMPORT")
        case "busy":
            return "THROTTLED"
    return None
