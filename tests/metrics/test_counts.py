"""Counting: label sets are bounded whatever jobs are called, attempts and codes too, and nothing but ends that count is counted."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

import pytest

from holdfast.engine.observers import Observers
from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.job import Claimed, Enqueued, JobId, JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, Verdict
from holdfast.metrics.counts import SHORT_BOUNDS, Counts, Histogram
from holdfast.metrics.names import FAMILIES, MOST_QUEUES, MOST_SETS, OTHER
from tests.claimed import claimed_job

LANE = Lane("mail", "send")


def claimed(lane: Lane = LANE, attempt: int = 1) -> Claimed:
    return claimed_job(lane, attempt=attempt, max_attempts=20, waited=timedelta(seconds=2))


def settle(
    counts: Counts,
    verdict: Verdict,
    job: Claimed | None = None,
    answer: SettlementStatus = SettlementStatus.APPLIED,
) -> None:
    job = job or claimed()
    end = Settlement(job.lease, verdict, job.attempt, timedelta(milliseconds=20))
    counts.settled([(end, job)], [answer])


def test_the_names_are_those_of_the_promise() -> None:  # E62
    assert sorted(FAMILIES) == sorted(
        [
            "jobs_created_total",
            "jobs_completed_total",
            "jobs_failed_total",
            "job_processing_duration_seconds",
            "queue_depth",
            "queue_lag_seconds",
            "build_info",
            "jobs_active",
            "jobs_delayed",
            "retries_scheduled_total",
            "attempts_total",
            "attempts_succeeded_total",
            "jobs_nonretryable_total",
            "manual_retry_total",
            "stuck_recovered_total",
            "breaker_state",
            "breaker_open_seconds_total",
            "dependency_latency_seconds",
            "event_lag_seconds",
            "outbox_lag_seconds",
            "outbox_parked",
            "dead_letters",
            "time_to_success_seconds",
        ]
    )


def test_no_label_can_name_a_job_an_owner_or_a_payload() -> None:  # E62
    allowed = {"task", "queue", "error_code", "type", "attempt", "dependency", "version"}
    assert {label for family in FAMILIES.values() for label in family.labels} == allowed


def test_attempts_from_the_tenth_on_share_a_label() -> None:  # E62
    counts = Counts()
    for attempt in (1, 9, 10, 11, 500):
        settle(counts, Complete("null"), claimed(attempt=attempt))
    [series] = counts.series.values()
    assert (series.attempts[1], series.attempts[9], series.attempts[10]) == (1, 1, 3)


def test_more_label_sets_than_there_may_be_share_one() -> None:  # E62
    counts = Counts()
    for number in range(MOST_SETS + 50):
        settle(counts, Complete("null"), claimed(Lane("mail", f"task{number}")))
    assert len(counts.series) == MOST_SETS + 1
    assert sum(counts.series[OTHER, OTHER].succeeded) == 50


def test_shards_make_no_label_sets() -> None:  # E62
    counts = Counts()
    for number in range(MOST_SETS + 50):
        settle(counts, Complete("null"), claimed(LANE._replace(dependency="bank", shard=f"tenant{number}")))
    assert list(counts.series) == [("send", "mail")]


def test_queues_that_callers_name_do_not_take_the_labels_of_others() -> None:  # E62
    own = {"send": "mail", "sweep": "night"}
    counts = Counts(own.get)
    for number in range(10_000):
        settle(counts, Complete("1"), claimed(Lane(f"queue {number}", "send")))
    settle(counts, Complete("1"), claimed(Lane("mail", "send")))
    settle(counts, Complete("1"), claimed(Lane("night", "sweep")))
    assert len(counts.series) == MOST_QUEUES + 3
    assert {("send", "mail"), ("send", OTHER), ("sweep", "night")} <= counts.series.keys()
    assert sum(counts.series["send", OTHER].succeeded) == 10_000 - MOST_QUEUES


def test_codes_made_up_by_handlers_are_bounded() -> None:  # E62
    counts = Counts()
    for number in range(MOST_SETS + 50):
        settle(counts, Bury(Failure(f"CODE_{number}", "no", ErrorClass.PERMANENT)))
    [series] = counts.series.values()
    assert len(series.failed) == MOST_SETS + 1
    assert series.failed[OTHER] == series.permanent[OTHER] == 50


def test_dependencies_are_bounded() -> None:  # E62
    counts = Counts()
    for number in range(MOST_SETS + 50):
        counts.called(Dependency("bank", str(number)), 0.1)
    assert len(counts.latencies) == MOST_SETS + 1


@pytest.mark.parametrize("answer", [SettlementStatus.REPEATED, SettlementStatus.LATE, SettlementStatus.STALE])
def test_an_end_that_did_not_count_is_not_counted(answer: SettlementStatus) -> None:  # E62
    counts = Counts()
    settle(counts, Complete("null"), answer=answer)
    assert counts.series == {}


def test_a_released_attempt_is_given_back_and_not_counted() -> None:  # E62
    counts = Counts()
    settle(counts, Release())
    [series] = counts.series.values()
    assert sum(series.attempts) == sum(series.durations.buckets) == 0


def test_the_time_to_success_includes_the_wait() -> None:  # E62
    counts = Counts()
    settle(counts, Complete("null"))
    [series] = counts.series.values()
    assert series.successes.sum == pytest.approx(2.02)
    assert series.durations.sum == pytest.approx(0.02)


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram(SHORT_BOUNDS)
    for seconds in (0.0, SHORT_BOUNDS[0], SHORT_BOUNDS[0] + 1e-9, 10_000.0):
        histogram.add(seconds)
    assert (histogram.buckets[0], histogram.buckets[1], histogram.buckets[-1]) == (2, 1, 1)


def test_enqueues_from_many_threads_are_all_counted() -> None:  # E62
    counts = Counts()
    jobs = [NewJob(JobId("j"), "{}", JobSpec(lane=LANE))]

    def enqueue() -> None:
        for _ in range(2000):
            counts.enqueued(jobs, [Enqueued(JobId("j"))])

    threads = [Thread(target=enqueue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.series["send", "mail"].created == 8000


def test_an_observer_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Counts):
        def timed_out(self, jobs: int) -> None:
            raise RuntimeError("a bug")

    observers, counts = Observers(), Counts()
    observers.add(Broken())
    observers.add(counts)
    observers.timed_out(3)
    assert counts.series[OTHER, OTHER].failed["TIMEOUT"] == 3
    assert "observer.failed" in caplog.text
