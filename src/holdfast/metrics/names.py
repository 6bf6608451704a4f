"""The metrics of E62: their names, kinds, labels and what they tell. Dashboards, alerts and the reference are checked against it.

Counters and histograms are of one process: sum them over all. Gauges are of the database, the same wherever they are asked:
take the largest. `breaker_open_seconds_total` is of the database, too.
"""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    kind: str  #: counter, gauge or histogram
    labels: tuple[str, ...]
    help: str


_LANE = ("task", "queue")

FAMILIES: dict[str, Family] = {
    "jobs_created_total": Family(
        "counter", _LANE, "Jobs this process has enqueued; duplicates do not count."
    ),
    "jobs_completed_total": Family("counter", _LANE, "Jobs this process has completed."),
    "jobs_failed_total": Family(
        "counter", (*_LANE, "error_code"), "Jobs this process has seen fail for good."
    ),
    "jobs_nonretryable_total": Family(
        "counter", (*_LANE, "error_code"), "Those of them that no retry could have saved."
    ),
    "job_processing_duration_seconds": Family("histogram", _LANE, "How long attempts took."),
    "time_to_success_seconds": Family(
        "histogram", _LANE, "From the moment a job was queued until it was complete."
    ),
    "attempts_total": Family("counter", ("task", "attempt"), "Attempts that ended, by their number."),
    "attempts_succeeded_total": Family("counter", ("task", "attempt"), "Those of them that succeeded."),
    "retries_scheduled_total": Family(
        "counter", ("type",), "Retries put into line: automatic, reclaimed, manual or redriven."
    ),
    "manual_retry_total": Family(
        "counter", (), "Retries that people asked this process for, redrives included."
    ),
    "stuck_recovered_total": Family(
        "counter", (), "Jobs reclaimed from lost workers and from attempts that ran too long."
    ),
    "dependency_latency_seconds": Family(
        "histogram", ("dependency",), "How long calls to a dependency took."
    ),
    "queue_depth": Family("gauge", ("queue",), "Jobs that are due and wait."),
    "jobs_active": Family("gauge", ("queue",), "Jobs that are being processed."),
    "jobs_delayed": Family("gauge", (), "Jobs that are due later."),
    "dead_letters": Family("gauge", (), "Dead letters."),
    "breaker_state": Family("gauge", ("dependency",), "0 closed, 1 half-open, 2 open."),
    "breaker_open_seconds_total": Family(
        "counter", ("dependency",), "How long the breaker was not closed, since this process began to look."
    ),
    "event_lag_seconds": Family(
        "gauge", (), "How old the oldest event is that readers do not get yet, behind a long transaction."
    ),
    "outbox_lag_seconds": Family(
        "gauge", (), "How long the oldest message in the outbox waits; an empty outbox has no value."
    ),
    "outbox_parked": Family("gauge", (), "Messages that no further try can help: a person decides."),
}

#: More label sets than this share one, whose labels are all "other".
MOST_SETS = 200
OTHER = "other"
#: Of one task no more queues than this have labels of their own, beside the one that it declares: callers may name any.
MOST_QUEUES = 20
#: Attempts from here on share one label.
LAST_ATTEMPT = 10
