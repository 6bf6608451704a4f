"""The log lines about the ends of attempts, each with all the facts of E63."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Claimed
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.logs import Log

log = Log("holdfast.worker")

MILLISECOND = timedelta(milliseconds=1)


def tell(claimed: Claimed, verdict: Verdict, spent: timedelta, breaker: str | None) -> None:
    """Say how an attempt ended. *breaker* is the state of its dependency's, where it has one.

    Completions and retries are told to whoever listens to "debug": the event log has them, and in an outage a line for each
    would cost more than the jobs.
    """
    match verdict:
        case Complete():
            if log.hears(logging.DEBUG):
                log.debug("job.completed", **_facts(claimed, spent, None, breaker))
        case RetryAfter(delay, failure):
            if log.hears(logging.DEBUG):
                facts = _facts(claimed, spent, failure, breaker)
                log.debug(
                    "job.retry", **facts, reason=_reason(failure), retry_in_ms=round(delay / MILLISECOND)
                )
        case Bury(failure):
            log.warning("job.failed", **_facts(claimed, spent, failure, breaker), reason=_reason(failure))
        case Release(_, why):
            log.info("job.released", **_facts(claimed, spent, None, breaker), why=why)


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


def _reason(failure: Failure) -> str:
    """The words that were written for people, and what was raised. What an exception itself says may be anything, a payload or
    a password: it is kept with the attempt (`holdfast jobs show`), and in no log."""
    if not failure.fingerprint:  # nothing was raised: the engine has found it
        return failure.detail or failure.message
    return f"{failure.message} ({failure.detail.partition(':')[0]})"
