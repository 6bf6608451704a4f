"""The judgement over a failed attempt and over a lost worker."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.verdict import Bury, Failure, RetryAfter, Verdict
from holdfast.resilience.backoff import Backoff, JitterSpec, exponential, fixed
from holdfast.resilience.policy import LONGEST_RETRY_AFTER, Retry, judge_crash, judge_failure

NOTHING = timedelta()
HOUR = timedelta(hours=1)
BOOM = Failure("BOOM", "It went wrong.", detail="RuntimeError: boom")
LOST = Failure.of("WORKER_LOST")


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


def judge(
    failure: Failure = BOOM,
    policy: Retry | None = None,
    *,
    attempt: int = 1,
    max_attempts: int = 3,
    chance: float = 0.5,
    elapsed: timedelta = NOTHING,
    until_deadline: timedelta | None = None,
) -> Verdict:
    return judge_failure(
        failure,
        policy or Retry(3, base="10s", jitter="none"),
        attempt=attempt,
        max_attempts=max_attempts,
        chance=chance,
        elapsed=elapsed,
        until_deadline=until_deadline,
    )


def asked(span: timedelta, status: int | None = 429) -> Failure:
    """The failure of a service that named a time."""
    return Failure("THROTTLED", "", ErrorClass.THROTTLED, gateway_status=status, retry_after=span)


def test_a_failure_is_retried_until_the_attempts_are_used_up() -> None:  # E2a E10
    assert judge(attempt=1) == RetryAfter(second(10), BOOM)
    assert judge(attempt=2) == RetryAfter(second(20), BOOM)
    assert judge(attempt=3) == Bury(BOOM)
    assert judge(attempt=4) == Bury(BOOM)
    assert judge(attempt=1, max_attempts=1) == Bury(BOOM)


def test_the_jobs_own_maximum_counts_not_the_tasks() -> None:  # E10
    assert isinstance(judge(attempt=5, max_attempts=6), RetryAfter)


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_only_a_permanent_failure_is_not_retried(error_class: ErrorClass) -> None:  # E13
    verdict = judge(Failure("X", "", error_class))
    assert isinstance(verdict, Bury) is (error_class is ErrorClass.PERMANENT)


def test_a_code_may_have_fewer_attempts() -> None:  # E10
    policy = Retry(5, jitter="none", attempts_by_code={"IO_ERROR": 2})
    disk = Failure.of("IO_ERROR")
    assert isinstance(judge(disk, policy, attempt=1, max_attempts=5), RetryAfter)
    assert judge(disk, policy, attempt=2, max_attempts=5) == Bury(disk)
    assert isinstance(judge(BOOM, policy, attempt=2, max_attempts=5), RetryAfter)
    assert judge(disk, policy, attempt=1, max_attempts=1) == Bury(disk)


def test_no_retry_starts_after_max_elapsed() -> None:  # E10
    policy = Retry(3, base="10s", jitter="none", max_elapsed="1m")
    assert isinstance(judge(BOOM, policy, elapsed=second(50)), RetryAfter)
    assert judge(BOOM, policy, elapsed=second(50.001)) == Bury(BOOM)


def test_a_retry_that_cannot_start_before_the_deadline_fails_now_as_timeout() -> None:  # E15
    assert judge(until_deadline=second(10)) == RetryAfter(second(10), BOOM)  # equal is on time
    verdict = judge(until_deadline=second(9.999))
    assert isinstance(verdict, Bury)
    assert (verdict.failure.code, verdict.failure.error_class) == ("TIMEOUT", ErrorClass.PERMANENT)
    assert "BOOM" in verdict.failure.detail  # what really happened stays readable
    assert "RuntimeError: boom" in verdict.failure.detail
    assert isinstance(judge(until_deadline=second(-5)), Bury)


def test_a_last_attempt_is_buried_for_its_own_reason_not_as_timeout() -> None:  # E15
    assert judge(attempt=3, until_deadline=second(-5)) == Bury(BOOM)


@given(
    st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=30)),
    st.floats(0, 1, exclude_max=True),
)
def test_a_services_own_time_is_jittered_only_upwards_and_cut_at_an_hour(
    span: timedelta, chance: float
) -> None:  # E12
    verdict = judge(asked(span), chance=chance)
    assert isinstance(verdict, RetryAfter)
    honoured = min(span, LONGEST_RETRY_AFTER)
    assert honoured <= verdict.delay <= honoured * 1.1 + timedelta(microseconds=1)


def test_a_services_own_time_replaces_the_backoff() -> None:  # E12
    policy = Retry(3, base="10s", cap="20s")
    assert judge(asked(second(100)), policy, chance=0.0) == RetryAfter(second(100), asked(second(100)))
    assert judge(asked(second(1)), policy, chance=0.0) == RetryAfter(second(1), asked(second(1)))
    assert judge(asked(5 * HOUR), policy, chance=0.0) == RetryAfter(HOUR, asked(5 * HOUR))


def test_a_policy_says_how_long_a_service_may_ask_to_be_left_alone() -> None:  # E12
    for most, honoured in (("10s", second(10)), ("3h", 3 * HOUR)):
        policy = Retry(3, max_retry_after=most)
        assert judge(asked(5 * HOUR), policy, chance=0.0) == RetryAfter(honoured, asked(5 * HOUR))
    for bad in ("0s", "31d", "soon", None):
        with pytest.raises(UsageError, match="max_retry_after"):
            Retry(3, max_retry_after=bad)  # type: ignore[arg-type]


def test_a_tasks_own_time_is_not_cut() -> None:  # E12
    own = asked(5 * HOUR, status=None)
    assert judge(own, chance=0.0) == RetryAfter(5 * HOUR, own)


def test_a_services_own_time_is_bound_by_attempts_and_deadline_too() -> None:  # E12 E15
    assert judge(asked(second(1)), attempt=3) == Bury(asked(second(1)))
    verdict = judge(asked(second(60)), until_deadline=second(59), chance=0.0)
    assert isinstance(verdict, Bury)
    assert verdict.failure.code == "TIMEOUT"
    assert verdict.failure.gateway_status == 429


@given(
    attempt=st.integers(1, 2000),
    max_attempts=st.integers(1, 1000),
    chance=st.floats(0, 1, exclude_max=True),
    elapsed=st.timedeltas(min_value=NOTHING, max_value=timedelta(days=400)),
    left=st.none() | st.timedeltas(min_value=timedelta(days=-1), max_value=timedelta(days=1)),
)
def test_no_verdict_breaks_a_limit(
    attempt: int, max_attempts: int, chance: float, elapsed: timedelta, left: timedelta | None
) -> None:  # E10 E15
    policy = Retry(1000, base="1s", cap="10m", max_elapsed="30d")
    verdict = judge(
        BOOM,
        policy,
        attempt=attempt,
        max_attempts=max_attempts,
        chance=chance,
        elapsed=elapsed,
        until_deadline=left,
    )
    if isinstance(verdict, RetryAfter):
        assert attempt < max_attempts
        assert NOTHING <= verdict.delay <= timedelta(minutes=10)
        assert elapsed + verdict.delay <= timedelta(days=30)
        assert left is None or verdict.delay <= left


def crash(
    *,
    attempt: int = 1,
    max_attempts: int = 10,
    crashes: int = 1,
    max_crashes: int = 3,
    chance: float = 0.5,
    jitter: JitterSpec = None,
) -> Verdict:
    return judge_crash(
        attempt=attempt,
        max_attempts=max_attempts,
        crashes=crashes,
        max_crashes=max_crashes,
        backoff=Backoff.of(exponential("10s"), jitter),
        chance=chance,
        lost=LOST,
    )


def test_a_first_crash_is_tried_again_at_once_and_later_ones_wait() -> None:  # E2a
    assert crash(crashes=1) == RetryAfter(NOTHING, LOST)
    assert crash(crashes=2) == RetryAfter(second(10), LOST)
    assert crash(crashes=3, max_crashes=5) == RetryAfter(second(20), LOST)


def test_crashes_that_came_together_drift_apart() -> None:  # E2a E11
    assert crash(crashes=2, chance=0.5, jitter="decorrelated") == RetryAfter(second(20), LOST)
    waits = {str(crash(crashes=3, max_crashes=5, chance=n / 50, jitter="decorrelated")) for n in range(50)}
    assert len(waits) == 50


def test_too_many_crashes_in_a_row_bury() -> None:  # E2a
    assert crash(crashes=3) == Bury(LOST)
    assert crash(crashes=1, max_crashes=1) == Bury(LOST)


def test_a_crash_in_the_last_attempt_buries_as_worker_lost() -> None:  # E2a
    verdict = crash(attempt=3, max_attempts=3)
    assert isinstance(verdict, Bury)
    assert verdict.failure.code == "WORKER_LOST"


@pytest.mark.parametrize("number", [0, -1, 1001, 2.5, "3", None])
def test_max_attempts_must_be_a_count(number: int) -> None:  # E10
    with pytest.raises(UsageError, match="max_attempts"):
        Retry(number)


@pytest.mark.parametrize("number", [0, 4, -1])
def test_attempts_by_code_lie_within_the_maximum(number: int) -> None:  # E10
    with pytest.raises(UsageError, match="IO_ERROR"):
        Retry(3, attempts_by_code={"IO_ERROR": number})


def test_a_policy_names_the_types_it_retries() -> None:  # E10 E13
    policy = Retry(only=[OSError], never=[FileNotFoundError])
    assert policy.allows(ConnectionError())
    assert not policy.allows(FileNotFoundError())
    assert not policy.allows(ValueError())
    assert Retry().allows(ValueError())


def test_a_policy_takes_a_curve_or_a_whole_backoff() -> None:  # E10
    assert Retry(backoff=fixed("7s"), jitter="none").backoff.delay(3, 0.5) == second(7)
    whole = Backoff(fixed("9s"))
    assert Retry(backoff=whole, jitter="full").backoff is whole
