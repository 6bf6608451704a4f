"""What the end of one call says about the dependency that was called.

A failed job does not mean a failed dependency: a 404 fails the job and is an answer of a healthy service, and
a bug in the handler says nothing about the service.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.verdict import Failure


class Outcome(StrEnum):
    """The outcome of one call, as far as the dependency is concerned."""

    OK = "ok"  # it answered, possibly with a refusal
    SLOW = "slow"  # it answered, later than it should
    FAILED = "failed"  # it did not answer, or answered with a server error
    THROTTLED = "throttled"  # it asked to be called less often
    UNCOUNTED = "uncounted"  # the call says nothing about it


#: Codes of failures that the dependency did not cause. A task that knows better raises `Retryable` or has a
#: rule.
LOCAL_CODES = frozenset(
    {
        "BAD_CALL",
        "CERTIFICATE",
        "CIRCUIT_OPEN",
        "DISK_FULL",
        "END_REFUSED",
        "EXITED",
        "EXPIRED",
        "INSUFFICIENT_CREDITS",
        "IO_ERROR",
        "MEMORY",
        "NOT_ADMITTED",
        "NOT_FOUND",
        "PAYLOAD_INVALID",
        "PERMISSION",
        "QUOTA_EXCEEDED",
        "RESULT_INVALID",
        "RESULT_TOO_LARGE",
        "STARTED_TOO_LATE",
        "STUCK",
        "TIMEOUT",
        "WORKER_LOST",
    }
)


def outcome_of(failure: Failure | None, latency_seconds: float, slow_after: timedelta | None) -> Outcome:
    """Return the outcome of a call that ended with *failure*, or with a result if that is None."""
    if failure is None or _is_answer(failure):
        late = slow_after is not None and latency_seconds > slow_after.total_seconds()
        return Outcome.SLOW if late else Outcome.OK
    if failure.error_class is ErrorClass.THROTTLED or failure.gateway_status == 429:
        return Outcome.THROTTLED
    if failure.gateway_status is not None:  # the remaining statuses are 5xx and 408
        return Outcome.FAILED
    if failure.error_class is ErrorClass.TRANSIENT and failure.code not in LOCAL_CODES:
        return Outcome.FAILED
    return Outcome.UNCOUNTED


def _is_answer(failure: Failure) -> bool:
    if failure.error_class is ErrorClass.THROTTLED:
        return False
    status = failure.gateway_status
    if status is not None:
        return status < 500 and status not in (408, 429)
    return failure.error_class is ErrorClass.PERMANENT and failure.code not in LOCAL_CODES
