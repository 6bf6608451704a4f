"""The metrics: names (E62), kinds, labels and help. Dashboards, alerts and reference are checked against them.

Counters and histograms belong to one process: sum them over all processes. Gauges describe the database and
are the same in every process: take the largest. `breaker_open_seconds_total` describes the database too.
"""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """A metric: its kind, its label names and its help text."""

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
        "counter", (*_LANE, "error_code"), "Jobs that failed permanently in this process."
    ),
    "jobs_nonretryable_total": Family(
        "counter", (*_LANE, "error_code"), "Jobs that failed permanently with an error that is not retryable."
    ),
    "job_processing_duration_seconds": Family("histogram", _LANE, "How long attempts took."),
    "time_to_success_seconds": Family(
        "histogram", _LANE, "Time from the moment a job was queued until it was complete."
    ),
    "attempts_total": Family("counter", ("task", "attempt"), "Attempts that ended, by attempt number."),
    "attempts_succeeded_total": Family(
        "counter", ("task", "attempt"), "Attempts that succeeded, by attempt number."
    ),
    "retries_scheduled_total": Family(
        "counter", ("type",), "Retries that were queued: automatic, reclaimed, manual or redriven."
    ),
    "manual_retry_total": Family(
        "counter", (), "Manual retries requested from this process, including redrives."
    ),
    "stuck_recovered_total": Family(
        "counter", (), "Jobs reclaimed from lost workers and from attempts that ran too long."
    ),
    "dependency_latency_seconds": Family(
        "histogram", ("dependency",), "How long calls to a dependency took."
    ),
    "queue_depth": Family("gauge", ("queue",), "Jobs that are due and wait for a worker."),
    "queue_lag_seconds": Family(
        "gauge", ("queue",), "How long the next job of the queue has been due; 0 if none waits."
    ),
    "jobs_active": Family("gauge", ("queue",), "Jobs that are being processed."),
    "jobs_delayed": Family("gauge", (), "Jobs that are due later."),
    "dead_letters": Family("gauge", (), "Dead letters."),
    "breaker_state": Family("gauge", ("dependency",), "0 closed, 1 half-open, 2 open."),
    "breaker_open_seconds_total": Family(
        "counter",
        ("dependency",),
        "How long the breaker was not closed, since this process started to observe it.",
    ),
    "event_lag_seconds": Family(
        "gauge", (), "Age of the oldest event that readers cannot see yet, because of a long transaction."
    ),
    "outbox_lag_seconds": Family(
        "gauge", (), "How long the oldest message in the outbox has waited; no value if the outbox is empty."
    ),
    "outbox_parked": Family(
        "gauge", (), "Messages that cannot be delivered and wait for a person's decision."
    ),
    "build_info": Family("gauge", ("version",), "1, with the version of Holdfast in this process."),
}

#: Label sets beyond this number share one, whose labels are all "other".
MOST_SETS = 200
OTHER = "other"
#: How many queues of one task get their own labels, besides the one that it declares: callers may name any
#: queue.
MOST_QUEUES = 20
#: Attempts from here on share one label.
LAST_ATTEMPT = 10
