"""What a call tells about the dependency it went to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.errors import Fatal, Retryable
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.verdict import Failure
from holdfast.resilience.classify import classify
from holdfast.resilience.outcome import Outcome, outcome_of
from holdfast.resilience.policy import Retry

SECOND = timedelta(seconds=1)

#: Every code that Holdfast has, and what a call that ended so tells. A new code must be given a place here.
CODES = {
    Outcome.FAILED: "RETRYABLE NETWORK CALL_TIMEOUT HTTP_5XX DATABASE EXECUTION_TIMEOUT",
    Outcome.OK: "FATAL HTTP_4XX",
    Outcome.THROTTLED: "THROTTLED",
    Outcome.UNCOUNTED: "UNKNOWN EXITED BAD_CALL CERTIFICATE CIRCUIT_OPEN DISK_FULL END_REFUSED EXPIRED IO_ERROR MEMORY"
    " INSUFFICIENT_CREDITS QUOTA_EXCEEDED"
    " NOT_ADMITTED NOT_FOUND PAYLOAD_INVALID PERMISSION RESULT_INVALID RESULT_TOO_LARGE STARTED_TOO_LATE STUCK TIMEOUT WORKER_LOST",
}


class Answer(Exception):
    """As an HTTP client raises it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


def outcome(error: Exception, policy: Retry | None = None) -> Outcome:
    return outcome_of(classify(error, policy=policy), 0.1, None)


def test_every_code_has_its_outcome() -> None:  # E20
    """In a process of its own: codes that other tests have registered have no place in the table."""
    tell = "from holdfast.jobs.codes import all_codes; print(*(code.name for code in all_codes()))"
    codes = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True
    ).stdout.split()
    found = {code: outcome_of(Failure.of(code), 0.1, None) for code in codes}
    assert found == {code: told for told, listed in CODES.items() for code in listed.split() if code in codes}


def test_a_result_is_a_good_answer_and_a_late_one_is_slow() -> None:  # E20
    assert outcome_of(None, 0.1, None) is Outcome.OK
    assert outcome_of(None, 1e9, None) is Outcome.OK
    assert outcome_of(None, 1.0, SECOND) is Outcome.OK
    assert outcome_of(None, 1.001, SECOND) is Outcome.SLOW


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, Outcome.OK),
        (404, Outcome.OK),
        (422, Outcome.OK),
        (408, Outcome.FAILED),
        (429, Outcome.THROTTLED),
        (500, Outcome.FAILED),
        (501, Outcome.FAILED),
        (503, Outcome.FAILED),
    ],
)
def test_a_status_is_an_answer_unless_the_service_itself_failed(
    status: int, expected: Outcome
) -> None:  # E20
    assert outcome(Answer(status)) is expected


def test_a_late_refusal_is_slow_too() -> None:  # E20
    assert outcome_of(classify(Answer(404)), 2.0, SECOND) is Outcome.SLOW
    assert outcome_of(classify(Fatal("no")), 2.0, SECOND) is Outcome.SLOW
    assert outcome_of(classify(Answer(500)), 2.0, SECOND) is Outcome.FAILED


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), ConnectionRefusedError(), ConnectionResetError(), BrokenPipeError(), Retryable("later")],
)
def test_timeouts_broken_connections_and_retryable_are_failures_of_the_service(
    error: Exception,
) -> None:  # E20
    assert outcome(error) is Outcome.FAILED


def test_the_word_of_the_task_decides_also_with_a_code_of_its_own() -> None:  # E20
    assert outcome(Retryable("busy", code="GATEWAY_BUSY")) is Outcome.FAILED
    assert outcome(Fatal("bad page", code="BAD_PAGE")) is Outcome.OK


@pytest.mark.parametrize(
    "error", [RuntimeError("bug"), KeyError("x"), TypeError("f() takes no x"), FileNotFoundError()]
)
def test_our_own_bugs_and_files_tell_nothing(error: Exception) -> None:  # E20
    assert outcome(error) is Outcome.UNCOUNTED


def test_a_failure_that_the_task_does_not_retry_is_still_the_services() -> None:  # E20
    assert outcome(Answer(503), Retry(never=[Answer])) is Outcome.FAILED


def test_throttling_is_known_by_its_class_whatever_the_status() -> None:  # E12, E20
    slow_down = replace(Failure.of("THROTTLED"), gateway_status=400)
    assert outcome_of(slow_down, 0.1, None) is Outcome.THROTTLED
    busy = Failure("GW_5XX", "busy", ErrorClass.TRANSIENT, gateway_status=429)
    assert outcome_of(busy, 0.1, None) is Outcome.THROTTLED
