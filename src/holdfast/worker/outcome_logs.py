"""The log lines about the ends of attempts, each with all the facts of E63."""

from __future__ import annotations

import logging
from collections.abc import MutableSet
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Claimed
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.logs import Log

log = Log("holdfast.worker")

MILLISECOND = timedelta(milliseconds=1)
#: How many tracebacks a worker remembers to have logged; beyond that each is logged once more.
MOST_SHOWN = 1000


def log_outcome(
    claimed: Claimed, verdict: Verdict, spent: timedelta, breaker: str | None, shown: MutableSet[str]
) -> None:
    """Log how an attempt ended: completions at debug, retries and releases at info, the last failure as a warning.

    Args:
        claimed: The job.
        verdict: How its attempt ended.
        spent: How long it took.
        breaker: The state of its dependency's breaker, where it has one.
        shown: The tracebacks that were logged before, by their keys. Each is logged once; later lines name it.
    """
    match verdict:
        case Complete(gateway_status=status):
            if log.hears(logging.DEBUG):
                facts = _facts(claimed, spent, None, breaker)
                log.debug("job.completed", **facts | {"gateway_status": status})
        case RetryAfter(delay, failure):
            if log.hears(logging.INFO):
                facts = _facts(claimed, spent, failure, breaker)
                wait = round(delay / MILLISECOND)
                log.info("job.retry_scheduled", **facts, retry_in_ms=wait, **_cause(failure, shown))
        case Bury(failure):
            if log.hears(logging.WARNING):
                log.warning(
                    "job.failed", **_facts(claimed, spent, failure, breaker), **_cause(failure, shown)
                )
        case Release(_, reason):
            log.info("job.released", **_facts(claimed, spent, None, breaker), reason=reason)


def _facts(
    claimed: Claimed, spent: timedelta, failure: Failure | None, breaker: str | None
) -> dict[str, Any]:
    return {
        "job_id": claimed.lease.job_id,
        "task": claimed.lane.task,
        "queue": claimed.lane.queue,
        "attempt": claimed.attempt,
        "duration_ms": round(spent / MILLISECOND),
        "gateway_status": None if failure is None else failure.gateway_status,
        "error_code": None if failure is None else failure.code,
        "breaker": breaker,
    }


def _cause(failure: Failure, shown: MutableSet[str]) -> dict[str, Any]:
    """The technical reason, which had its secrets removed, and where it was raised."""
    told: dict[str, Any] = {"reason": failure.detail or failure.message}
    traceback = failure.traceback
    if traceback is not None:
        told["traceback_id"] = traceback.key
        if traceback.key not in shown:
            if len(shown) >= MOST_SHOWN:
                shown.clear()
            shown.add(traceback.key)
            told["traceback"] = traceback.with_message(failure.detail)
    return told
