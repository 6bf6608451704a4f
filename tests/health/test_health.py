"""The judgement about health (E65): each fact against its threshold, and what is meant to wait is not held against anybody."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.health.judgement import Check, HealthInputs, Level, Thresholds, judge_health
from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Cause, Held, Scope, ScopeKind
from holdfast.jobs.stats import JobStats, LaneStats
from holdfast.outbox.model import Lag
from holdfast.resilience.breaker import BreakerState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LANE = Lane("mail", "send", "gateway")
MINUTE = timedelta(minutes=1)
WELL = HealthInputs(stats=JobStats(lines={LANE: LaneStats(5, 1, timedelta(seconds=2))}), now=NOW, workers=2)


def held(kind: ScopeKind, name: str, cause: Cause = Cause.PAUSE) -> Held:
    return Held(scope=Scope(kind, name), cause=cause, until=None, reason="", by="ann", at=NOW)


def check(inputs: HealthInputs, name: str, **limits: Any) -> Check:
    [found] = [one for one in judge_health(inputs, Thresholds(**limits)).checks if one.name == name]
    return found


def with_census(**facts: Any) -> HealthInputs:
    return replace(WELL, stats=replace(WELL.stats, **facts))


def test_all_is_well_where_nothing_is_wrong() -> None:  # E65
    health = judge_health(WELL, Thresholds())
    assert health.level is Level.PASS
    assert [one.name for one in health.checks] == [
        "workers",
        "queue_depth",
        "oldest_wait",
        "lost_leases",
        "stuck",
        "retry_failures",
        "maintenance",
        "schedules",
        "relay",
        "breakers",
        "pauses",
        "dead_letters",
    ]


WAITING = {LANE: LaneStats(5, 0, timedelta(minutes=10))}


@pytest.mark.parametrize(
    ("inputs", "name", "level"),
    [
        (replace(WELL, workers=0), "workers", Level.FAIL),
        (with_census(lines={LANE: LaneStats(10_000)}), "queue_depth", Level.WARN),
        (with_census(lines={LANE: LaneStats(9_999)}), "queue_depth", Level.PASS),
        (
            with_census(lines={LANE: LaneStats(6_000), LANE._replace(task="other"): LaneStats(4_000)}),
            "queue_depth",
            Level.WARN,
        ),
        (with_census(lines=WAITING), "oldest_wait", Level.WARN),
        (with_census(lines={LANE: LaneStats(5, 0, timedelta(hours=1))}), "oldest_wait", Level.FAIL),
        (replace(WELL, lost=1), "lost_leases", Level.WARN),
        (replace(WELL, lost=100), "lost_leases", Level.FAIL),
        (replace(WELL, stuck=1), "stuck", Level.WARN),
        (with_census(retried=20, failed_retries=10), "retry_failures", Level.WARN),
        (with_census(retried=20, failed_retries=9), "retry_failures", Level.PASS),
        (with_census(retried=19, failed_retries=19), "retry_failures", Level.PASS),
        (with_census(overdue=timedelta(seconds=29)), "maintenance", Level.PASS),
        (with_census(overdue=timedelta(seconds=30)), "maintenance", Level.FAIL),
        (replace(WELL, ticks={"nightly": NOW - MINUTE}), "schedules", Level.WARN),
        (replace(WELL, ticks={"nightly": NOW + MINUTE}), "schedules", Level.PASS),
        (replace(WELL, breakers={"gateway": BreakerState.OPEN}), "breakers", Level.WARN),
        (replace(WELL, breakers={"gateway": BreakerState.CLOSED}), "breakers", Level.PASS),
        (with_census(dead_letters=1_000), "dead_letters", Level.WARN),
        (replace(WELL, lags=[Lag("a", 9, 0, MINUTE), Lag("b", 1, 0, None)]), "relay", Level.WARN),
        (replace(WELL, lags=[Lag("a", 9, 0, timedelta(seconds=59))]), "relay", Level.PASS),
        (replace(WELL, lags=[Lag("a", 0, 1, None)]), "relay", Level.WARN),
    ],
)
def test_a_fact_is_held_against_its_threshold(inputs: HealthInputs, name: str, level: Level) -> None:  # E65
    found = check(inputs, name)
    assert found.level is level
    worst = judge_health(inputs, Thresholds()).level
    assert worst is level or level is Level.PASS
    assert found.text
    assert "\n" not in found.text


@pytest.mark.parametrize(
    "why",
    [
        {"holds": [held(ScopeKind.QUEUE, "mail")]},
        {"holds": [held(ScopeKind.DEPENDENCY, "gateway", Cause.RETRY_AFTER)]},
        {"breakers": {"gateway": BreakerState.OPEN}},
    ],
)
def test_jobs_behind_a_hold_or_an_open_breaker_are_meant_to_wait(why: dict[str, Any]) -> None:  # E65
    assert check(replace(with_census(lines=WAITING), **why), "oldest_wait").level is Level.PASS


@pytest.mark.parametrize("duty", ["delayed", "retries"])
def test_a_duty_that_somebody_paused_is_not_missing(duty: str) -> None:  # E65
    inputs = replace(with_census(overdue=timedelta(hours=1)), holds=[held(ScopeKind.MAINTENANCE, duty)])
    assert check(inputs, "maintenance").level is Level.PASS
    assert check(inputs, "pauses").seen == [f"maintenance {duty}"]


def test_a_relay_that_somebody_paused_is_not_missing() -> None:  # E65 E27
    inputs = replace(
        WELL, lags=[Lag("a", 9, 0, timedelta(hours=1))], holds=[held(ScopeKind.MAINTENANCE, "relay")]
    )
    assert check(inputs, "relay").level is Level.PASS


@pytest.mark.parametrize(
    "hold", [held(ScopeKind.SCHEDULE, "nightly"), held(ScopeKind.MAINTENANCE, "schedules")]
)
def test_a_schedule_that_somebody_paused_is_not_late(hold: Held) -> None:  # E65
    inputs = replace(WELL, ticks={"nightly": NOW - timedelta(hours=1)}, holds=[hold])
    assert check(inputs, "schedules").level is Level.PASS


def test_thresholds_come_from_the_environment() -> None:  # E65
    limits = Thresholds.read(
        {
            "HOLDFAST_HEALTH_QUEUE_DEPTH": "7",
            "HOLDFAST_HEALTH_OLDEST_WAIT": "90s",
            "HOLDFAST_HEALTH_RETRY_FAILURES": "0.2",
        }
    )
    assert limits == Thresholds(queue_depth=7, oldest_wait=timedelta(seconds=90), retry_failures=0.2)
    assert check(with_census(lines={LANE: LaneStats(7)}), "queue_depth", queue_depth=7).level is Level.WARN


@pytest.mark.parametrize(
    ("name", "text"),
    [("QUEUE_DEPTH", "many"), ("OLDEST_WAIT", "soon"), ("RETRY_FAILURES", "half"), ("STUCK", "-1")],
)
def test_a_threshold_that_cannot_be_read_is_refused(name: str, text: str) -> None:  # E65
    with pytest.raises(UsageError, match=f"HOLDFAST_HEALTH_{name} is '{text}'"):
        Thresholds.read({f"HOLDFAST_HEALTH_{name}": text})
