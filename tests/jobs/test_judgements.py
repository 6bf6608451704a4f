"""Small judgements that every store makes with the same words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.jobs.job import JobId, JobRow
from holdfast.jobs.judgements import broken_invariants, outcome_of, retry_refusal
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
QUEUED = JobRow(
    id=JobId("j"),
    task="t",
    queue="q",
    owner=None,
    priority=0,
    state=State.QUEUED,
    generation=1,
    epoch=0,
    attempt=0,
    max_attempts=3,
    crashes=0,
    run_at=NOW,
    created_at=NOW,
    queued_at=NOW,
    started_at=None,
    finished_at=None,
    last_attempt_at=None,
    updated_at=NOW,
    deadline_at=None,
    expired_at=None,
    leased_by=None,
    lease_expires_at=None,
    error_code=None,
    error_message=None,
    last_failure=None,
    retry_type="AUTOMATIC",
    manual_retry_count=0,
    result=None,
    tags=(),
    payload={},
)
PROCESSING = replace(
    QUEUED,
    state=State.PROCESSING,
    attempt=1,
    epoch=1,
    started_at=NOW,
    leased_by="w",
    lease_expires_at=LATER,
)
COMPLETE = replace(
    QUEUED, state=State.COMPLETE, attempt=1, epoch=1, started_at=NOW, finished_at=LATER, result=7
)
FAILED = replace(
    COMPLETE,
    state=State.FAILED,
    result=None,
    error_code="BOOM",
    error_message="Boom.",
    last_failure={"code": "BOOM"},
)
CANCELLED = replace(QUEUED, state=State.CANCELLED, finished_at=LATER)


@pytest.mark.parametrize("row", [QUEUED, PROCESSING, COMPLETE, FAILED, CANCELLED], ids=lambda row: row.state)
def test_a_row_as_it_should_be_breaks_no_rule(row: JobRow) -> None:  # E3
    assert list(broken_invariants(row)) == []


@pytest.mark.parametrize(
    ("row", "change", "words"),
    [
        (QUEUED, {"result": 7}, "result"),
        (FAILED, {"result": 0}, "result"),
        (QUEUED, {"error_code": "X"}, "error_code"),
        (FAILED, {"error_code": None}, "error_code"),
        (COMPLETE, {"error_message": "x"}, "error_message"),
        (QUEUED, {"leased_by": "w"}, "leased_by"),
        (PROCESSING, {"leased_by": None}, "leased_by"),
        (QUEUED, {"lease_expires_at": NOW}, "lease_expires_at"),
        (QUEUED, {"finished_at": NOW}, "finished_at"),
        (COMPLETE, {"finished_at": None}, "finished_at"),
        (CANCELLED, {"finished_at": None}, "finished_at"),
        (COMPLETE, {"last_failure": {"code": "X"}}, "last_failure"),
        (PROCESSING, {"attempt": 4}, "attempt 4 of 3"),
        (QUEUED, {"attempt": -1}, "attempt -1 of 3"),
        (PROCESSING, {"queued_at": LATER}, "started before"),
        (COMPLETE, {"started_at": LATER + timedelta(1)}, "finished before"),
        (CANCELLED, {"queued_at": LATER + timedelta(1)}, "finished before"),
    ],
)
def test_each_broken_rule_is_told(row: JobRow, change: dict[str, Any], words: str) -> None:  # E3
    [told] = broken_invariants(replace(row, **change))
    assert words in told


def test_a_row_may_break_several_rules() -> None:  # E3
    assert len(list(broken_invariants(replace(QUEUED, result=1, error_code="X", attempt=9)))) == 3


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (Complete("1"), "complete"),
        (RetryAfter(timedelta(), Failure("X", "")), "retry"),
        (Bury(Failure("X", "")), "failed"),
        (Release(), "released"),
        (Release(snoozed=True), "snoozed"),
    ],
)
def test_each_verdict_has_its_word(verdict: Verdict, word: str) -> None:  # E8
    assert outcome_of(verdict) == word


@pytest.mark.parametrize("state", list(State))
def test_a_refused_retry_names_the_job_and_its_state(state: State) -> None:  # E33
    told = retry_refusal("job-1", state)
    assert "job-1" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("row", "can"),
    [
        (QUEUED, False),
        (replace(QUEUED, run_at=LATER), True),
        (PROCESSING, False),
        (COMPLETE, False),
        (FAILED, True),
    ],
)
def test_a_row_tells_what_a_person_may_do(row: JobRow, can: bool) -> None:  # E3a
    assert row.is_retryable is can
    assert (row.failed_at is not None) is (row.state is State.FAILED)
