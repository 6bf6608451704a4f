"""What one call to a dependency tells about that dependency.

A job's failure and a dependency's failure are not the same: "404" fails the job and is an answer of a healthy service;
a bug of our own fails the job and says nothing about anybody else.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from holdfast.domain.codes import ErrorClass
from holdfast.domain.verdict import Failure


class Outcome(StrEnum):
    OK = "ok"  # it answered, if only to refuse
    SLOW = "slow"  # it answered, later than it should
    FAILED = "failed"  # it did not answer, or with an error of its own
    THROTTLED = "throttled"  # it asked to be called less often
    UNCOUNTED = "uncounted"  # the call tells nothing about it


#: Failures that begin and end on our side. A task that knows better raises `Retryable`, or says so by a rule.
OURS = frozenset(
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
    """Judge a call that ended after *latency_seconds*, with *failure* or with a result (None)."""
    if failure is None or _is_answer(failure):
        late = slow_after is not None and latency_seconds > slow_after.total_seconds()
        return Outcome.SLOW if late else Outcome.OK
    if failure.error_class is ErrorClass.THROTTLED or failure.gateway_status == 429:
        return Outcome.THROTTLED
    if failure.gateway_status is not None:  # what answers are left: 5xx, and 408
        return Outcome.FAILED
    if failure.error_class is ErrorClass.TRANSIENT and failure.code not in OURS:
        return Outcome.FAILED
    return Outcome.UNCOUNTED


def _is_answer(failure: Failure) -> bool:
    if failure.error_class is ErrorClass.THROTTLED:
        return False
    status = failure.gateway_status
    if status is not None:
        return status < 500 and status not in (408, 429)
    return failure.error_class is ErrorClass.PERMANENT and failure.code not in OURS
